//! What `fencegate run` and `fencegate lease` have to be told of etcd, if leases are taken from it
//! without a gateway in between: what `[coordinator]` tells the gateway.

use std::path::{Path, PathBuf};

use crate::coordinator::etcd::{EtcdSettings, EtcdTls, EtcdUser, Layout};
use crate::live_file::read_text;

#[derive(Debug, clap::Args)]
pub(super) struct EtcdArgs {
    /// Take leases from etcd itself instead: each member's host:port, with commas between them
    #[arg(long, value_name = "HOST:PORT,…", conflicts_with = "url")]
    etcd: Option<String>,
    /// With --etcd: where the gateway's coordinator.prefix has the leases
    #[arg(long, requires = "etcd", default_value = "/fencegate/leases", value_name = "PREFIX")]
    prefix: String,
    /// With --etcd: the gateway's coordinator.layout
    #[arg(long, requires = "etcd", value_enum, default_value = "mutex")]
    layout: KeyLayout,
    /// With --etcd: the user to be
    #[arg(long, env = "FENCEGATE_ETCD_USERNAME", value_name = "NAME")]
    etcd_username: Option<String>,
    /// With --etcd: a file that holds the user's password
    #[arg(long, env = "FENCEGATE_ETCD_PASSWORD_FILE", value_name = "FILE")]
    etcd_password_file: Option<PathBuf>,
    /// With --etcd: TLS, and the certificates (PEM) that etcd's own is signed by
    #[arg(long, env = "FENCEGATE_ETCD_CA_FILE", value_name = "FILE")]
    etcd_ca_file: Option<PathBuf>,
    /// With --etcd and TLS: the certificate (PEM) to be known by
    #[arg(long, env = "FENCEGATE_ETCD_CERT_FILE", value_name = "FILE")]
    etcd_cert_file: Option<PathBuf>,
    /// With --etcd and TLS: the private key of that (PEM)
    #[arg(long, env = "FENCEGATE_ETCD_KEY_FILE", value_name = "FILE")]
    etcd_key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum KeyLayout {
    /// Below one key for the resource, as etcd's own lock has them
    Mutex,
    /// One key for the resource
    Key,
}

impl EtcdArgs {
    /// `None`: leases do not come from etcd.
    pub(super) fn settings(&self) -> Result<Option<EtcdSettings>, String> {
        let Some(members) = &self.etcd else { return Ok(None) };
        let endpoints: Vec<String> = members.split(',').map(str::to_owned).collect();
        if let Some(wrong) = endpoints.iter().find(|member| !is_host_and_port(member)) {
            return Err(format!("--etcd {wrong:?} is no host:port; give 127.0.0.1:2379"));
        }
        let prefix = self.prefix.trim_end_matches('/');
        if prefix.is_empty() || prefix.chars().any(char::is_control) {
            return Err("--prefix is empty; give one such as /fencegate/leases".to_owned());
        }
        let layout = match self.layout {
            KeyLayout::Mutex => Layout::Mutex,
            KeyLayout::Key => Layout::Key,
        };
        let (user, tls) = (self.user()?, self.tls()?);
        Ok(Some(EtcdSettings { endpoints, prefix: prefix.to_owned(), layout, user, tls }))
    }

    fn user(&self) -> Result<Option<EtcdUser>, String> {
        match (&self.etcd_username, &self.etcd_password_file) {
            (None, None) => Ok(None),
            (Some(name), Some(file)) => {
                Ok(Some(EtcdUser { name: name.clone(), password: content(file)? }))
            }
            _ => Err("give both --etcd-username and --etcd-password-file, or neither".to_owned()),
        }
    }

    fn tls(&self) -> Result<Option<EtcdTls>, String> {
        let identity = match (&self.etcd_cert_file, &self.etcd_key_file) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((content(certificate)?, content(key)?)),
            _ => {
                return Err("give both --etcd-cert-file and --etcd-key-file, or neither".to_owned());
            }
        };
        match (&self.etcd_ca_file, identity) {
            (None, None) => Ok(None),
            (Some(ca), identity) => Ok(Some(EtcdTls { ca: content(ca)?, identity })),
            (None, Some(_)) => Err("TLS needs --etcd-ca-file".to_owned()),
        }
    }
}

/// What is in the file, without the end of its last line.
fn content(file: &Path) -> Result<String, String> {
    let text = read_text(file).map_err(|why| format!("{file:?} {why}"))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn is_host_and_port(member: &str) -> bool {
    let Ok(authority) = member.parse::<http::uri::Authority>() else { return false };
    authority.port_u16().is_some_and(|port| port != 0)
        && !authority.host().is_empty()
        && !member.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_etcd_are_hosts_with_ports() {
        for member in ["127.0.0.1:2379", "[::1]:2379", "etcd-1.internal:2379"] {
            assert!(is_host_and_port(member), "{member}");
        }
        for member in
            ["", "etcd", "etcd:", "etcd:0", "etcd:99999", "http://etcd:1", "a@b:1", "a:1/"]
        {
            assert!(!is_host_and_port(member), "{member}");
        }
    }
}
