//! What `fencegate run` and `fencegate lease` take alike.

pub(super) use crate::config::duration;
use crate::coordinator::etcd::{EtcdSettings, Layout};
use crate::fence::Owner;
use crate::worker::Leases;

#[derive(Debug, clap::Args)]
pub(super) struct LeaseSource {
    /// Address of the lease API [default: FENCEGATE_LEASES, else http://127.0.0.1:8081]
    #[arg(long = "leases", value_name = "URL")]
    url: Option<String>,
    /// Take leases from etcd itself instead: each member's host:port, with commas between them
    #[arg(long, value_name = "HOST:PORT,…", conflicts_with = "url")]
    etcd: Option<String>,
    /// With --etcd: where the gateway's coordinator.prefix has the leases
    #[arg(long, requires = "etcd", default_value = "/fencegate/leases", value_name = "PREFIX")]
    prefix: String,
    /// With --etcd: the gateway's coordinator.layout
    #[arg(long, requires = "etcd", value_enum, default_value = "mutex")]
    layout: KeyLayout,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum KeyLayout {
    /// Below one key for the resource, as etcd's own lock has them
    Mutex,
    /// One key for the resource
    Key,
}

impl LeaseSource {
    /// Where leases come from, or what is wrong with the address. With etcd, has to be called in a
    /// tokio runtime.
    pub(super) fn leases(&self) -> Result<Leases, String> {
        match &self.etcd {
            Some(members) => Ok(Leases::etcd(&self.etcd_settings(members)?)),
            None => self.lease_api(),
        }
    }

    fn lease_api(&self) -> Result<Leases, String> {
        let from_environment = || match std::env::var("FENCEGATE_LEASES") {
            Ok(url) => Ok(url),
            Err(std::env::VarError::NotPresent) => Ok("http://127.0.0.1:8081".to_owned()),
            Err(std::env::VarError::NotUnicode(_)) => Err("FENCEGATE_LEASES is not UTF-8"),
        };
        let url = self.url.clone().map_or_else(from_environment, Ok)?;
        Leases::api(&url).map_err(|error| error.to_string())
    }

    fn etcd_settings(&self, members: &str) -> Result<EtcdSettings, String> {
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
        Ok(EtcdSettings { endpoints, prefix: prefix.to_owned(), layout, user: None, tls: None })
    }
}

fn is_host_and_port(member: &str) -> bool {
    let Ok(authority) = member.parse::<http::uri::Authority>() else { return false };
    authority.port_u16().is_some_and(|port| port != 0)
        && !authority.host().is_empty()
        && !member.contains('@')
}

/// A name that no other process has: two runs of one name would end each other's leases.
pub(super) fn unique_owner() -> Owner {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (process, random) = (std::process::id(), uuid::Uuid::new_v4().simple());
    Owner::new(&format!("{}:{process}:{random}", host.trim_end())).unwrap_or_else(|_| {
        Owner::new(&format!("{process}:{random}")).expect("digits name an owner")
    })
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

    #[test]
    fn no_two_owners_are_alike() {
        assert_ne!(unique_owner(), unique_owner());
    }
}
