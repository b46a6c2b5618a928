//! The store that the configuration names, and this instance's place in it.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio_util::task::TaskTracker;

use super::ServeError;
use crate::clock::Clock;
use crate::config::{Config, Store};
use crate::fences::Fences;
use crate::metrics::StoreMetrics;
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
    pub(super) history: Arc<dyn HistoryStore>,
    /// The file, where it is one: the embedded coordinator keeps its leases there.
    pub(super) database: Option<Database>,
    pub(super) lease: Arc<InstanceLease>,
    keeper: Option<Keeper>,
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
                Opened::Postgres(store, settings.instance_ttl)
            }
        })
    }

    /// Begins this instance's run. In a shared store its lease runs from now on.
    pub(super) async fn begin(
        self,
        clock: Clock,
        registry: &Registry,
        tasks: &TaskTracker,
    ) -> Result<Backend, ServeError> {
        let metrics = InstanceMetrics::register(registry)?;
        match self {
            Opened::Postgres(store, ttl) => {
                let fences = Arc::new(PostgresFences::new(&store, tasks));
                let keeper = Keeper::join(&store, ttl, metrics).await?;
                Ok(Backend {
                    store: Arc::clone(&fences) as _,
                    history: fences,
                    database: None,
                    lease: keeper.lease(),
                    keeper: Some(keeper),
                })
            }
            Opened::Sqlite(database) => {
                let fences = Arc::new(SqliteFences::new(&database, clock, tasks));
                Ok(Backend {
                    store: Arc::clone(&fences) as _,
                    history: fences,
                    lease: Arc::new(InstanceLease::unlimited(database.instance())),
                    database: Some(database),
                    keeper: None,
                })
            }
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
}
