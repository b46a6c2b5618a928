//! `fencegate serve` as a library: everything put together, from binding to the last grant given
//! back.
//!
//! The order matters at both ends. Start: lock the store (whoever had it is gone), bind everything,
//! and only then accept. Stop: unready, accept no more, finish what is in flight, cut what does
//! not finish, give the grants back that are settled.

mod apis;
mod backend;
mod coordinator;
mod descriptors;
mod listeners;
mod reload;
mod secured;
mod traces;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing_appender::non_blocking::ErrorCounter;

use self::apis::Apis;
use self::backend::Opened;
use self::listeners::Listeners;
use self::reload::{Present, Reloader, Reloads};
use self::secured::Secured;
use self::traces::Traces;
use crate::access::Access;
use crate::admin::{self, Admin, Readiness};
use crate::clock::Clock;
use crate::config::{Config, Loaded, Sources};
use crate::coordinator::{
    Coordinator, CoordinatorError, Guard, LeaseMetrics, Measured, PostgresStartError,
};
use crate::fences::{Fences, FencesParts};
use crate::gateway::{Connections, Gateway, GatewayParts};
use crate::http_server::ApiBounds;
use crate::lease_api;
use crate::metrics::{
    Census, Exemplars, FenceMetrics, GatewayMetrics, LimitMetrics, Limits, Process, ReloadMetrics,
};
use crate::spans::Spans;
use crate::store::{ConnectError, Kept, OpenError, StoreError};
use crate::tls::TlsError;
use crate::token_gauges::TokenGauges;

/// For clients of the lease and admin listeners, and for the store, at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Why the gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The store's file cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The store's server cannot be used.
    #[error(transparent)]
    Server(#[from] ConnectError),
    /// The store does not answer any more.
    #[error(transparent)]
    Silent(#[from] StoreError),
    /// The leases cannot be read.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// The database of the leases cannot be used.
    #[error(transparent)]
    PostgresCoordinator(#[from] PostgresStartError),
    /// The marks are etcd's revisions, and tokens of another coordinator would be below them.
    #[error(
        "the store has marks of etcd, and coordinator.url is not etcd's: its tokens would all be \
         stale; set coordinator.url to that etcd, or take a new store"
    )]
    NotEtcd,
    /// The embedded coordinator has no file to keep its leases in.
    #[error(
        "the embedded coordinator needs store.url = \"sqlite:PATH\"; name another coordinator.url"
    )]
    NoFile,
    /// An address cannot be listened on.
    #[error("listen.{name} = \"{address}\" cannot be used: {hint}")]
    Bind {
        /// `proxy`, `leases` or `admin`.
        name: &'static str,
        /// The address.
        address: SocketAddr,
        /// What is wrong and what to do.
        hint: String,
    },
    /// A certificate, key or authority cannot be used.
    #[error("TLS cannot be used: {0}")]
    Tls(#[from] TlsError),
    /// A thread cannot be started.
    #[error("the threads of the proxy listener cannot be started")]
    Threads(#[source] io::Error),
    /// Two metrics have one name.
    #[error("the metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
}

/// A gateway that serves.
struct Running {
    config: Present,
    reloads: Reloads,
    fences: Arc<Fences>,
    /// This instance's lease in the store, where it has one.
    kept: Option<Kept>,
    gateway: Gateway,
    ready: Arc<Readiness>,
    apis: Apis,
    accepting: JoinHandle<()>,
    traces: Traces,
    /// What works for the store; ends when nobody can ask it any more.
    store_tasks: TaskTracker,
}

/// What the process is asked for from outside.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// To end.
    pub shutdown: CancellationToken,
    /// To load its configuration anew.
    pub reload: Arc<Notify>,
}

/// Serves until it is asked to end, then ends in good order. `loaded` is what `sources` say; `log` counts lines of
/// the log that were dropped.
///
/// # Errors
/// See [`ServeError`]. After the start nothing fails as a whole.
pub async fn serve(
    loaded: Loaded,
    sources: Sources,
    asked: Requests,
    log: ErrorCounter,
) -> Result<(), ServeError> {
    let running = Running::start(loaded, sources, asked.reload, log).await?;
    asked.shutdown.cancelled().await;
    running.stop().await;
    Ok(())
}

impl Running {
    async fn start(
        loaded: Loaded,
        sources: Sources,
        reload: Arc<Notify>,
        log: ErrorCounter,
    ) -> Result<Running, ServeError> {
        let config = Arc::new(loaded.config.clone());
        descriptors::provide(&config);
        let (clock, registry) = (Clock::new(), Registry::new());
        let exemplars = Exemplars::new(clock);
        let mut traces = Traces::start(&config, clock, &registry)?;
        let fence_metrics = FenceMetrics::register(&registry, &exemplars)?;
        let store_tasks = TaskTracker::new();
        let secured = Secured::open(&config, &registry)?;
        let opened = Opened::open(&config, clock, &registry, &store_tasks).await?;
        let listeners = Listeners::bind(&config).await?;
        let lease_metrics = LeaseMetrics::register(&registry)?;
        let mut backend =
            opened.begin(&config, clock, &registry, &lease_metrics, &store_tasks).await?;
        let measured = Arc::new(Measured::new(Arc::clone(&backend.coordinator), &registry)?);
        let coordinator: Arc<dyn Coordinator> = Arc::clone(&measured) as _;
        let base = Base { config, clock, registry, exemplars };
        let parts = backend.fences_parts(&base.config, clock, &coordinator, &fence_metrics);
        let fences = admission(parts, &store_tasks).await;
        let kept = backend.keep(&fences);
        let parts = base.gateway(&fences, &fence_metrics, &secured, traces.spans.take())?;
        let limit_hits = parts.limit_hits.clone();
        let (gateway, acceptor) = Gateway::start(parts).map_err(ServeError::Threads)?;
        let apis = Apis::new(ApiBounds::new(base.config.limits.api), limit_hits);
        listeners.announce(&base.config.store, backend.instance());
        let census = Arc::new(Census::register(&base.registry, measures(&base.config), log)?);
        let present = Present::new(Arc::clone(&base.config));
        let reloads = Reloads::start(
            reload,
            Reloader {
                sources: Arc::new(sources),
                loaded: Arc::new(loaded),
                present: present.clone(),
                gateway: Arc::new(gateway.reconfigure()),
                fences: Arc::clone(&fences),
                api: apis.bounds.0.clone(),
                census: Arc::clone(&census),
                certificates: secured.certificates(),
                clock,
                metrics: ReloadMetrics::register(&base.registry, clock.wall())?,
            },
        );
        let ready = Arc::new(Readiness::new(clock));
        let observed = (&fences, gateway.connections(), backend.guard.clone());
        let admin = base.admin(observed, &coordinator, Arc::clone(&ready), census)?;
        let access = Access::new(base.config.access.credentials.clone(), clock, &base.registry)?;
        let (bounds, closing) = (apis.bounds.clone(), apis.leases_closing.clone());
        let leases = lease_api::router(coordinator, &access, clock, lease_metrics, bounds, closing);
        apis.count_leases(measured, base.registry);
        apis.leases(listeners.leases, secured.leases(), leases);
        apis.admin(listeners.admin, secured.admin(), admin::router(admin, &access));
        apis.follow(base.config.live_files());
        apis.tasks.spawn(secured.watch(apis.admin_closing.clone()));
        Ok(Running {
            config: present,
            reloads,
            fences,
            kept,
            gateway,
            ready,
            apis,
            accepting: tokio::spawn(acceptor.accept(listeners.proxy)),
            traces,
            store_tasks,
        })
    }

    async fn stop(self) {
        tracing::info!("shutting down: not ready any more");
        self.ready.end();
        self.reloads.stop().await;
        let shutdown = self.config.get().shutdown.clone();
        tokio::time::sleep(shutdown.unready).await;
        self.gateway.close();
        if let Err(error) = self.accepting.await {
            tracing::error!(%error, "accepting connections had failed");
        }
        self.gateway.finish(shutdown.grace, &self.fences).await;
        self.traces.closing.cancel();
        self.apis.stop(LAST_ANSWERS).await;
        match self.fences.give_back_all().await {
            Ok(0) => tracing::info!("shut down: all grants were given back"),
            Ok(kept) => tracing::warn!(
                kept,
                "shut down: grants of writes in doubt were kept; the next start waits for them"
            ),
            Err(error) => tracing::error!(%error, "shut down: grants could not be given back"),
        }
        self.traces.flush().await;
        drop(self.fences);
        if let Some(kept) = self.kept
            && timeout(LAST_ANSWERS, kept.leave()).await.is_err()
        {
            tracing::warn!("the store did not take this instance's leave in time");
        }
        self.store_tasks.close();
        if timeout(LAST_ANSWERS, self.store_tasks.wait()).await.is_err() {
            tracing::warn!("the store was not closed in time");
        }
    }
}

/// Says as well what earlier runs left behind.
async fn admission(parts: FencesParts, tasks: &TaskTracker) -> Arc<Fences> {
    let fences = Fences::new(parts, tasks);
    if let Err(error) = fences.log_left().await {
        tracing::warn!(%error, "what earlier runs left behind could not be looked up");
    }
    fences
}

/// What everything is made of.
struct Base {
    config: Arc<Config>,
    clock: Clock,
    registry: Registry,
    exemplars: Exemplars,
}

impl Base {
    fn gateway(
        &self,
        fences: &Arc<Fences>,
        metrics: &FenceMetrics,
        secured: &Secured,
        spans: Option<Spans>,
    ) -> prometheus::Result<GatewayParts> {
        let metrics = GatewayMetrics::register(&self.registry, &self.exemplars, metrics)?;
        Ok(GatewayParts {
            config: Arc::clone(&self.config),
            fences: Arc::clone(fences),
            clock: self.clock,
            metrics: Arc::new(metrics),
            limit_hits: LimitMetrics::register(&self.registry)?,
            spans,
            tls: secured.proxy(),
            upstream_tls: secured.upstreams(),
        })
    }

    fn admin(
        &self,
        (fences, connections, guard): (&Arc<Fences>, Connections, Option<Arc<Guard>>),
        coordinator: &Arc<dyn Coordinator>,
        ready: Arc<Readiness>,
        census: Arc<Census>,
    ) -> prometheus::Result<Admin> {
        let tokens = TokenGauges {
            resources: self.config.metrics.resources.clone(),
            fences: Arc::clone(fences),
            coordinator: Arc::clone(coordinator),
        };
        Ok(Admin {
            fences: Arc::clone(fences),
            connections,
            tokens: Arc::new(tokens),
            census,
            process: Arc::new(Process::register(&self.registry, self.clock)?),
            exemplars: self.exemplars.clone(),
            registry: self.registry.clone(),
            guard,
            ready,
            open_metrics: self.config.access.open_metrics,
        })
    }
}

fn measures(config: &Config) -> Limits {
    Limits { cells: config.limits.cells, connections: config.limits.connections }
}
