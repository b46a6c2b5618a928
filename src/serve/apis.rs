//! The lease and admin listeners, from their first connection to their last answer.
//!
//! Both go on while the proxy listener finishes, so that a worker can renew and release for as long as its writes are
//! let through.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::coordinator::Measured;
use crate::http_server::{self, ApiBounds};
use crate::live_file::{self, Live};
use crate::metrics::LimitMetrics;
use crate::tls::Handshakes;

/// What answers on both.
pub(super) struct Apis {
    pub(super) bounds: (ApiBounds, LimitMetrics),
    /// Ends the lease listener and the acquisitions that wait.
    pub(super) leases_closing: CancellationToken,
    pub(super) admin_closing: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Apis {
    pub(super) fn new(bounds: ApiBounds, hits: LimitMetrics) -> Apis {
        Apis {
            bounds: (bounds, hits),
            leases_closing: CancellationToken::new(),
            admin_closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    pub(super) fn leases(
        &self,
        listener: TcpListener,
        tls: Option<Handshakes>,
        router: axum::Router,
    ) {
        self.spawn(listener, tls, router, &self.leases_closing);
    }

    pub(super) fn admin(
        &self,
        listener: TcpListener,
        tls: Option<Handshakes>,
        router: axum::Router,
    ) {
        self.spawn(listener, tls, router, &self.admin_closing);
    }

    /// Counts the live leases for as long as somebody may scrape that.
    pub(super) fn count_leases(&self, coordinator: Arc<Measured>, registry: Registry) {
        let closing = self.admin_closing.clone();
        self.tasks.spawn(async move {
            if let Err(error) = coordinator.count_leases(&registry, closing).await {
                tracing::error!(%error, "leases are not counted");
            }
        });
    }

    /// Keeps up with files that may change, for as long as anything is served.
    pub(super) fn follow(&self, files: Vec<Arc<dyn Live>>) {
        self.tasks.spawn(live_file::watch(files, self.admin_closing.clone()));
    }

    /// Takes no more requests, and waits so long for the answers.
    pub(super) async fn stop(self, answers: Duration) {
        self.leases_closing.cancel();
        self.admin_closing.cancel();
        self.tasks.close();
        if timeout(answers, self.tasks.wait()).await.is_err() {
            tracing::warn!("a client of the lease or admin listener did not take its answer");
        }
    }

    fn spawn(
        &self,
        listener: TcpListener,
        tls: Option<Handshakes>,
        router: axum::Router,
        closing: &CancellationToken,
    ) {
        let (bounds, closing, tasks) = (self.bounds.clone(), closing.clone(), self.tasks.clone());
        self.tasks.spawn(async move {
            http_server::serve(listener, tls, router, bounds, closing, &tasks).await;
        });
    }
}
