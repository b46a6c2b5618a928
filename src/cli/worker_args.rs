//! What `fencegate run` and `fencegate lease` take alike.

use super::client_args::GatewayArgs;
use super::etcd_args::EtcdArgs;
pub(super) use crate::config::duration;
use crate::fence::Owner;
use crate::worker::{LeaseClient, Leases, TlsFiles};

#[derive(Debug, clap::Args)]
pub(super) struct LeaseSource {
    /// Address of the lease API [default: FENCEGATE_LEASES, else http://127.0.0.1:8081]
    #[arg(long = "leases", value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(flatten)]
    etcd: EtcdArgs,
}

impl LeaseSource {
    /// Where leases come from, or what is wrong with the address. With etcd, has to be called in a
    /// tokio runtime.
    pub(super) fn leases(&self) -> Result<Leases, String> {
        let files = self.gateway.files()?;
        match self.etcd.settings()? {
            // Whoever asks for TLS must not get plain text.
            Some(_) if files != TlsFiles::default() => Err(
                "--ca-file, --cert-file and --key-file are for a gateway; give --etcd-ca-file, …"
                    .to_owned(),
            ),
            Some(settings) => Ok(Leases::etcd(&settings)),
            None => self.lease_api(&files),
        }
    }

    fn lease_api(&self, files: &TlsFiles) -> Result<Leases, String> {
        let from_environment = || match std::env::var("FENCEGATE_LEASES") {
            Ok(url) => Ok(url),
            Err(std::env::VarError::NotPresent) => Ok("http://127.0.0.1:8081".to_owned()),
            Err(std::env::VarError::NotUnicode(_)) => Err("FENCEGATE_LEASES is not UTF-8"),
        };
        let url = self.url.clone().map_or_else(from_environment, Ok)?;
        let client = LeaseClient::with_files(&url, files).map_err(|error| error.to_string())?;
        Ok(Leases::from(match self.gateway.token()? {
            Some(token) => client.with_token(token),
            None => client,
        }))
    }
}

/// A name that no other process has: two runs of one name would end each other's leases.
pub(super) fn unique_owner() -> Owner {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (process, random) = (std::process::id(), uuid::Uuid::new_v4().simple());
    Owner::new(&format!("{}:{process}:{random}", host.trim_end())).unwrap_or_else(|_| {
        Owner::new(&format!("{process}:{random}")).expect("digits name an owner")
    })
}

/// The same under a name that it is known by.
pub(super) fn owner_of(prefix: &Owner) -> Result<Owner, String> {
    let unique = unique_owner();
    Owner::new(&format!("{prefix}:{unique}")).map_err(|_| "--owner-prefix is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_owners_are_alike() {
        assert_ne!(unique_owner(), unique_owner());
    }
}
