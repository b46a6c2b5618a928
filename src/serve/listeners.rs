//! The three addresses that are listened on.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::ServeError;
use crate::config::{Config, Store};
use crate::store::InstanceId;

pub(super) struct Listeners {
    pub(super) proxy: TcpListener,
    pub(super) leases: TcpListener,
    pub(super) admin: TcpListener,
}

impl Listeners {
    /// Binds all of them before any of them is served, so that a mistake in one is an error of the
    /// start and not of the first client.
    pub(super) async fn bind(config: &Config) -> Result<Listeners, ServeError> {
        Ok(Listeners {
            proxy: bind("proxy", config.listen.proxy).await?,
            leases: bind("leases", config.listen.leases).await?,
            admin: bind("admin", config.listen.admin).await?,
        })
    }

    pub(super) fn announce(&self, store: &Store, instance: InstanceId) {
        let address = |listener: &TcpListener| {
            listener.local_addr().map_or_else(|error| error.to_string(), |at| at.to_string())
        };
        tracing::info!(
            proxy = address(&self.proxy),
            leases = address(&self.leases),
            admin = address(&self.admin),
            store = match store {
                Store::Sqlite(path) => path.display().to_string(),
                Store::Postgres(settings) => settings.pooled.to_string(),
            },
            %instance,
            version = env!("CARGO_PKG_VERSION"),
            "listening"
        );
    }
}

async fn bind(name: &'static str, address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "another process listens there; stop it, or choose another port".into()
            }
            io::ErrorKind::PermissionDenied => {
                "this user may not use that port; choose one from 1024 on".into()
            }
            io::ErrorKind::AddrNotAvailable => {
                "this machine does not have that address; use one of its own, or 0.0.0.0".into()
            }
            _ => error.to_string(),
        };
        ServeError::Bind { name, address, hint }
    })
}
