//! All certificates of a gateway, and the look at their files.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::live::{Files, Reloaded};
use super::{ClientTls, Live, ServerTls, TlsError, TlsMetrics};
use crate::config::Config;

/// How often the files are looked at: far more often than anybody renews a certificate.
const LOOKS: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Clone)]
pub struct Certificates {
    /// Of the proxy listener, if it has one.
    pub proxy: Option<Arc<ServerTls>>,
    /// Of the lease listener.
    pub leases: Option<Arc<ServerTls>>,
    /// Of the admin listener.
    pub admin: Option<Arc<ServerTls>>,
    /// By the position of the upstream; `None` where its URL is `http://`.
    pub upstreams: Vec<Option<Arc<ClientTls>>>,
}

impl Certificates {
    /// Reads all of them.
    ///
    /// # Errors
    /// Some file cannot be used.
    pub fn open(config: &Config, metrics: &TlsMetrics) -> Result<Certificates, TlsError> {
        let listen = &config.listen;
        let upstream = |upstream: &crate::config::Upstream| {
            open(&format!("upstream.{}", upstream.name), upstream.tls.as_ref(), metrics)
        };
        Ok(Certificates {
            proxy: open("listen.proxy", listen.proxy_tls.as_ref(), metrics)?,
            leases: open("listen.leases", listen.leases_tls.as_ref(), metrics)?,
            admin: open("listen.admin", listen.admin_tls.as_ref(), metrics)?,
            upstreams: config.upstreams.iter().map(upstream).collect::<Result<_, _>>()?,
        })
    }

    /// Looks at all files once. What changed is used for connections made from now on, each certificate with
    /// its key and authorities whole or not at all. Says whether nothing was refused. It reads files, so it may block.
    pub fn reload(&self) -> bool {
        let listeners = [&self.proxy, &self.leases, &self.admin].into_iter().flatten();
        let listeners = listeners.map(|tls| tls.reload());
        let upstreams = self.upstreams.iter().flatten().map(|tls| tls.reload());
        // All of them are looked at, whatever becomes of one.
        let refused = listeners.chain(upstreams).filter(|end| matches!(end, Reloaded::Refused(_)));
        refused.count() == 0
    }

    /// Looks at the files now and then until `shutdown`.
    pub async fn watch(self, shutdown: CancellationToken) {
        if self.is_empty() {
            return;
        }
        while shutdown.run_until_cancelled(tokio::time::sleep(LOOKS)).await.is_some() {
            let all = self.clone();
            if tokio::task::spawn_blocking(move || all.reload()).await.is_err() {
                tracing::error!("looking at the certificate files failed");
            }
        }
    }

    fn is_empty(&self) -> bool {
        let has_listener = [&self.proxy, &self.leases, &self.admin].iter().any(|tls| tls.is_some());
        !has_listener && self.upstreams.iter().all(Option::is_none)
    }
}

fn open<F: Files + Clone>(
    name: &str,
    files: Option<&F>,
    metrics: &TlsMetrics,
) -> Result<Option<Arc<Live<F>>>, TlsError> {
    let open = |files: &F| Live::open(name, files.clone(), metrics).map(Arc::new);
    files.map(open).transpose()
}
