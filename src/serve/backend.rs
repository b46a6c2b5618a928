//! The store and the coordinator that the configuration names, and this instance's place in them.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio_util::task::TaskTracker;

use super::{ServeError, coordinator};
use crate::clock::Clock;
use crate::config::{Config, Store};
use crate::coordinator::{Coordinator, Guard, GuardMetrics, LeaseMetrics};
use crate::fences::{Bounds, Fences, FencesParts};
use crate::metrics::{FenceMetrics, StoreMetrics};
use crate::store::{
    Database, FenceStore, HistoryStore, InstanceId, InstanceLease, InstanceMetrics, Keeper, Kept,
    Postgres, PostgresFences, SqliteFences,
};

/// A store that was opened and checked. Nobody else can have an SQLite file from here on; in a shared store this
/// instance is not known yet.
pub(super) enum Opened {
    Sqlite(Database),
    /// With the length of this instance's lease.
    Postgres(Postgres, Duration),
}

/// What admission is put together from.
pub(super) struct Backend {
    pub(super) store: Arc<dyn FenceStore>,
    pub(super) coordinator: Arc<dyn Coordinator>,
    /// Watches over the coordinator's history, where that is not in the store itself.
    pub(super) guard: Option<Arc<Guard>>,
    pub(super) lease: Arc<InstanceLease>,
    keeper: Option<Keeper>,
}

/// The store, in its roles.
struct Opening {
    fences: Arc<dyn FenceStore>,
    history: Arc<dyn HistoryStore>,
    lease: Arc<InstanceLease>,
    keeper: Option<Keeper>,
    /// The home of the embedded coordinator.
    database: Option<Database>,
}

impl Opened {
    pub(super) async fn open(
        config: &Config,
        clock: Clock,
        registry: &Registry,
        tasks: &TaskTracker,
    ) -> Result<Opened, ServeError> {
        let metrics = StoreMetrics::register(registry)?;
        Ok(match &config.store {
            Store::Sqlite(path) => {
                Opened::Sqlite(Database::open(path, clock, tasks, metrics).await?)
            }
            Store::Postgres(settings) => {
                let store = Postgres::open(settings, clock, tasks, metrics).await?;
                store.register_pool(registry)?;
                Opened::Postgres(store, settings.instance_ttl)
            }
        })
    }

    /// Begins this instance's run. In a shared store its lease runs from now on.
    pub(super) async fn begin(
        self,
        config: &Config,
        clock: Clock,
        registry: &Registry,
        metrics: &LeaseMetrics,
        tasks: &TaskTracker,
    ) -> Result<Backend, ServeError> {
        let of_instances = InstanceMetrics::register(registry)?;
        let guard_metrics = GuardMetrics::register(registry)?;
        let Opening { fences, history, lease, keeper, database } = match self {
            Opened::Postgres(store, ttl) => {
                Opening::shared(&store, ttl, of_instances, tasks).await?
            }
            Opened::Sqlite(database) => Opening::sole(database, clock, tasks),
        };
        let (coordinator, guard) = coordinator::start(coordinator::Parts {
            config: &config.coordinator,
            database: database.as_ref(),
            history,
            clock,
            tasks,
            metrics: metrics.clone(),
            guard_metrics,
            registry,
        })
        .await?;
        Ok(Backend { store: fences, coordinator, guard, lease, keeper })
    }
}

impl Opening {
    async fn shared(
        store: &Postgres,
        ttl: Duration,
        metrics: InstanceMetrics,
        tasks: &TaskTracker,
    ) -> Result<Opening, ServeError> {
        let keeper = Keeper::join(store, ttl, metrics).await?;
        let fences = Arc::new(PostgresFences::new(store, tasks));
        Ok(Opening {
            history: Arc::clone(&fences) as _,
            fences,
            lease: keeper.lease(),
            keeper: Some(keeper),
            database: None,
        })
    }

    fn sole(database: Database, clock: Clock, tasks: &TaskTracker) -> Opening {
        let fences = Arc::new(SqliteFences::new(&database, clock, tasks));
        Opening {
            history: Arc::clone(&fences) as _,
            fences,
            lease: Arc::new(InstanceLease::unlimited(database.instance())),
            keeper: None,
            database: Some(database),
        }
    }
}

impl Backend {
    pub(super) fn instance(&self) -> InstanceId {
        self.lease.instance()
    }

    /// Keeps this instance's lease for as long as it runs, where it has one.
    pub(super) fn keep(&mut self, fences: &Arc<Fences>) -> Option<Kept> {
        let fences: Arc<Fences> = Arc::clone(fences);
        self.keeper.take().map(|keeper| keeper.keep(fences))
    }

    /// What admission works with, by `coordinator`, which measures this one.
    pub(super) fn fences_parts(
        &self,
        config: &Config,
        clock: Clock,
        coordinator: &Arc<dyn Coordinator>,
        metrics: &FenceMetrics,
    ) -> FencesParts {
        FencesParts {
            store: Arc::clone(&self.store),
            lease: Arc::clone(&self.lease),
            coordinator: Arc::clone(coordinator),
            clock,
            bounds: bounds(config),
            metrics: metrics.clone(),
        }
    }
}

pub(super) fn bounds(config: &Config) -> Bounds {
    Bounds {
        waiters: u32::try_from(config.limits.waiters).unwrap_or(u32::MAX),
        cells: config.limits.cells,
        idle: config.limits.cell_idle,
    }
}
