//! `fencegate serve` as a library: everything put together, from binding to the last grant given
//! back.
//!
//! The order matters at both ends. Start: lock the store (whoever had it is gone), bind everything,
//! and only then accept. Stop: unready, accept no more, finish what is in flight, cut what does
//! not finish, give the grants back that are settled.

mod backend;
mod coordinator;
mod descriptors;
mod reload;
mod secured;
mod traces;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing_appender::non_blocking::ErrorCounter;

use self::backend::{Backend, Opened};
use self::reload::{Present, Reloader, Reloads};
use self::secured::Secured;
use self::traces::Traces;
use crate::admin::{self, Admin, Readiness};
use crate::clock::Clock;
use crate::config::{Config, Loaded, Sources, Store};
use crate::coordinator::{
    Coordinator, CoordinatorError, LeaseMetrics, Measured, PostgresStartError,
};
use crate::fences::{Bounds, Fences, FencesParts};
use crate::gateway::{Gateway, GatewayParts};
use crate::http_server::ApiBounds;
use crate::metrics::{
    Census, Exemplars, FenceMetrics, GatewayMetrics, LimitMetrics, Limits, Process, ReloadMetrics,
};
use crate::store::{ConnectError, InstanceId, Kept, OpenError, StoreError};
use crate::tls::{Handshakes, TlsError};
use crate::token_gauges::TokenGauges;
use crate::{http_server, lease_api};

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

struct Listeners {
    proxy: TcpListener,
    leases: TcpListener,
    admin: TcpListener,
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
    /// Ends the lease listener and the acquisitions that wait.
    leases_closing: CancellationToken,
    admin_closing: CancellationToken,
    accepting: JoinHandle<()>,
    /// What answers on the lease and admin listeners.
    api_tasks: TaskTracker,
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
        let clock = Clock::new();
        let registry = Registry::new();
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
        let parts = fences_parts(&backend, &coordinator, &config, clock, fence_metrics.clone());
        let fences = admission(parts, &store_tasks).await;
        let kept = backend.keep(&fences);
        let limit_hits = LimitMetrics::register(&registry)?;
        let metrics = GatewayMetrics::register(&registry, &exemplars, &fence_metrics)?;
        let parts = GatewayParts {
            config: Arc::clone(&config),
            fences: Arc::clone(&fences),
            clock,
            metrics: Arc::new(metrics),
            limit_hits: limit_hits.clone(),
            spans: traces.spans.take(),
            tls: secured.proxy(),
            upstream_tls: secured.upstreams(),
        };
        let (gateway, acceptor) = Gateway::start(parts).map_err(ServeError::Threads)?;
        let api = (ApiBounds::new(config.limits.api), limit_hits);
        listeners.announce(&config.store, backend.instance());
        let present = Present::new(Arc::clone(&config));
        let reloader = Reloader {
            sources: Arc::new(sources),
            loaded: Arc::new(loaded),
            present: present.clone(),
            gateway: Arc::new(gateway.reconfigure()),
            fences: Arc::clone(&fences),
            api: api.0.clone(),
            certificates: secured.certificates(),
            clock,
            metrics: ReloadMetrics::register(&registry, clock.wall())?,
        };
        let reloads = Reloads::start(reload, reloader);
        let ready = Arc::new(Readiness::new(clock));
        let admin = Admin {
            fences: Arc::clone(&fences),
            connections: gateway.connections(),
            tokens: Arc::new(token_gauges(&config, &fences, &coordinator)),
            census: Arc::new(Census::register(&registry, limits(&config), log)?),
            process: Arc::new(Process::register(&registry, clock)?),
            exemplars,
            registry: registry.clone(),
            guard: backend.guard.clone(),
            ready: Arc::clone(&ready),
        };
        let (leases_closing, admin_closing) = (CancellationToken::new(), CancellationToken::new());
        let closing = leases_closing.clone();
        let leases = lease_api::router(coordinator, clock, lease_metrics, api.clone(), closing);
        let api_tasks = TaskTracker::new();
        spawn_count(measured, registry, admin_closing.clone(), &api_tasks);
        let admin = admin::router(admin);
        spawn_api(listeners.leases, secured.leases(), leases, &api, &leases_closing, &api_tasks);
        spawn_api(listeners.admin, secured.admin(), admin, &api, &admin_closing, &api_tasks);
        api_tasks.spawn(secured.watch(admin_closing.clone()));
        Ok(Running {
            config: present,
            reloads,
            fences,
            kept,
            gateway,
            ready,
            leases_closing,
            admin_closing,
            accepting: tokio::spawn(acceptor.accept(listeners.proxy)),
            api_tasks,
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
        // Last, so that a worker can renew and release for as long as its writes are let through.
        self.leases_closing.cancel();
        self.admin_closing.cancel();
        self.api_tasks.close();
        if timeout(LAST_ANSWERS, self.api_tasks.wait()).await.is_err() {
            tracing::warn!("a client of the lease or admin listener did not take its answer");
        }
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

fn fences_parts(
    backend: &Backend,
    coordinator: &Arc<dyn Coordinator>,
    config: &Config,
    clock: Clock,
    metrics: FenceMetrics,
) -> FencesParts {
    FencesParts {
        store: Arc::clone(&backend.store),
        lease: Arc::clone(&backend.lease),
        coordinator: Arc::clone(coordinator),
        clock,
        bounds: bounds(config),
        metrics,
    }
}

/// Of the live leases, for as long as somebody may scrape it.
fn spawn_count(
    coordinator: Arc<Measured>,
    registry: Registry,
    closing: CancellationToken,
    tasks: &TaskTracker,
) {
    tasks.spawn(async move {
        if let Err(error) = coordinator.count_leases(&registry, closing).await {
            tracing::error!(%error, "leases are not counted");
        }
    });
}

fn spawn_api(
    listener: TcpListener,
    tls: Option<Handshakes>,
    router: axum::Router,
    bounds: &(ApiBounds, LimitMetrics),
    closing: &CancellationToken,
    tasks: &TaskTracker,
) {
    let (bounds, closing, answers) = (bounds.clone(), closing.clone(), tasks.clone());
    tasks.spawn(async move {
        http_server::serve(listener, tls, router, bounds, closing, &answers).await;
    });
}

impl Listeners {
    /// Binds all of them before any of them is served, so that a mistake in one is an error of the
    /// start and not of the first client.
    async fn bind(config: &Config) -> Result<Listeners, ServeError> {
        Ok(Listeners {
            proxy: bind("proxy", config.listen.proxy).await?,
            leases: bind("leases", config.listen.leases).await?,
            admin: bind("admin", config.listen.admin).await?,
        })
    }

    fn announce(&self, store: &Store, instance: InstanceId) {
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

fn token_gauges(
    config: &Config,
    fences: &Arc<Fences>,
    coordinator: &Arc<dyn Coordinator>,
) -> TokenGauges {
    TokenGauges {
        resources: config.metrics.resources.clone(),
        fences: Arc::clone(fences),
        coordinator: Arc::clone(coordinator),
    }
}

fn limits(config: &Config) -> Limits {
    Limits { cells: config.limits.cells, connections: config.limits.connections }
}

fn bounds(config: &Config) -> Bounds {
    Bounds {
        waiters: u32::try_from(config.limits.waiters).unwrap_or(u32::MAX),
        cells: config.limits.cells,
        idle: config.limits.cell_idle,
    }
}
