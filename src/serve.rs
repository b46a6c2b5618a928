//! `fencegate serve` as a library: everything put together, from binding to the last grant given
//! back.
//!
//! The order matters at both ends. Start: lock the store (whoever had it is gone), bind everything,
//! and only then accept. Stop: unready, accept no more, finish what is in flight, cut what does
//! not finish, give the grants back that are settled.

mod backend;
mod coordinator;
mod secured;
mod traces;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing_appender::non_blocking::ErrorCounter;

use self::backend::Opened;
use self::secured::Secured;
use self::traces::Traces;
use crate::access::Access;
use crate::admin::{self, Admin};
use crate::clock::Clock;
use crate::config::{Config, Store};
use crate::coordinator::{
    Coordinator, CoordinatorError, LeaseMetrics, Measured, PostgresStartError,
};
use crate::fences::{Fences, FencesParts};
use crate::gateway::{Gateway, GatewayParts};
use crate::metrics::{Census, Exemplars, FenceMetrics, GatewayMetrics, Limits, Process};
use crate::store::{ConnectError, InstanceId, Kept, OpenError, StoreError};
use crate::tls::{Handshakes, TlsError};
use crate::token_gauges::TokenGauges;
use crate::{http_server, lease_api, live_file};

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
    config: Arc<Config>,
    fences: Arc<Fences>,
    /// This instance's lease in the store, where it has one.
    kept: Option<Kept>,
    gateway: Gateway,
    ready: Arc<AtomicBool>,
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

/// Serves until `shutdown`, then ends in good order. `log` counts lines of the log that were dropped.
///
/// # Errors
/// See [`ServeError`]. After the start nothing fails as a whole.
pub async fn serve(
    config: Config,
    shutdown: CancellationToken,
    log: ErrorCounter,
) -> Result<(), ServeError> {
    let running = Running::start(Arc::new(config), log).await?;
    shutdown.cancelled().await;
    running.stop().await;
    Ok(())
}

impl Running {
    async fn start(config: Arc<Config>, log: ErrorCounter) -> Result<Running, ServeError> {
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
        let parts = backend.fences_parts(&config, clock, &coordinator, &fence_metrics);
        let fences = admission(parts, &store_tasks).await;
        let kept = backend.keep(&fences);
        let parts = GatewayParts {
            config: Arc::clone(&config),
            fences: Arc::clone(&fences),
            clock,
            metrics: GatewayMetrics::register(&registry, &exemplars, &fence_metrics)?,
            spans: traces.spans.take(),
            tls: secured.proxy(),
            upstream_tls: secured.upstreams(),
        };
        let (gateway, acceptor) = Gateway::start(&parts).map_err(ServeError::Threads)?;
        listeners.announce(&config.store, backend.instance());
        let access = Access::new(config.access.credentials.clone(), clock, &registry)?;
        let ready = Arc::new(AtomicBool::new(true));
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
            open_metrics: config.access.open_metrics,
        };
        let (leases_closing, admin_closing) = (CancellationToken::new(), CancellationToken::new());
        let leases =
            lease_api::router(coordinator, &access, clock, lease_metrics, leases_closing.clone());
        let api_tasks = TaskTracker::new();
        spawn_count(measured, registry, admin_closing.clone(), &api_tasks);
        api_tasks.spawn(live_file::watch(config.live_files(), admin_closing.clone()));
        spawn_api(listeners.leases, secured.leases(), leases, &leases_closing, &api_tasks);
        let admin = admin::router(admin, &access);
        spawn_api(listeners.admin, secured.admin(), admin, &admin_closing, &api_tasks);
        api_tasks.spawn(secured.watch(admin_closing.clone()));
        Ok(Running {
            config,
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
        self.ready.store(false, Ordering::Relaxed);
        tokio::time::sleep(self.config.shutdown.unready).await;
        self.gateway.close();
        if let Err(error) = self.accepting.await {
            tracing::error!(%error, "accepting connections had failed");
        }
        self.gateway.finish(self.config.shutdown.grace, &self.fences).await;
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
    closing: &CancellationToken,
    tasks: &TaskTracker,
) {
    let (closing, answers) = (closing.clone(), tasks.clone());
    tasks.spawn(async move { http_server::serve(listener, tls, router, closing, &answers).await });
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
