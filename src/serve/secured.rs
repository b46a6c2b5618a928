//! TLS of the listeners and to the upstreams, as far as it is configured.

use std::sync::Arc;

use prometheus::Registry;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use crate::config::Config;
use crate::tls::{Certificates, ClientTls, Handshakes, ServerTls, TlsMetrics};

pub(super) struct Secured {
    certificates: Certificates,
    metrics: TlsMetrics,
}

impl Secured {
    pub(super) fn open(config: &Config, registry: &Registry) -> Result<Secured, ServeError> {
        let metrics = TlsMetrics::register(registry)?;
        let certificates = Certificates::open(config, &metrics)?;
        Ok(Secured { certificates, metrics })
    }

    pub(super) fn proxy(&self) -> Option<Handshakes> {
        self.listener("proxy", self.certificates.proxy.as_ref())
    }

    pub(super) fn leases(&self) -> Option<Handshakes> {
        self.listener("leases", self.certificates.leases.as_ref())
    }

    pub(super) fn admin(&self) -> Option<Handshakes> {
        self.listener("admin", self.certificates.admin.as_ref())
    }

    /// By their position.
    pub(super) fn upstreams(&self) -> Vec<Option<Arc<ClientTls>>> {
        self.certificates.upstreams.clone()
    }

    /// All of them.
    pub(super) fn certificates(&self) -> Certificates {
        self.certificates.clone()
    }

    /// Follows the files until `shutdown`.
    pub(super) async fn watch(self, shutdown: CancellationToken) {
        self.certificates.watch(shutdown).await;
    }

    /// The series of a listener without TLS are there, too.
    fn listener(&self, name: &str, tls: Option<&Arc<ServerTls>>) -> Option<Handshakes> {
        let failed = self.metrics.handshakes_failed(name);
        tls.map(|tls| Handshakes { tls: Arc::clone(tls), failed })
    }
}
