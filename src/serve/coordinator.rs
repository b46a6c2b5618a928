//! Which coordinator it is, by the configuration.

use std::sync::Arc;

use prometheus::Registry;
use tokio_util::task::TaskTracker;

use super::ServeError;
use crate::clock::Clock;
use crate::config;
use crate::coordinator::etcd::Guarded;
use crate::coordinator::{
    Coordinator, CoordinatorError, Embedded, Etcd, Guard, GuardMetrics, LeaseMetrics, Postgres,
};
use crate::store::{Database, HistoryStore};

/// What a coordinator is made of, whichever it is.
pub(super) struct Parts<'a> {
    pub(super) config: &'a config::Coordinator,
    /// The home of the embedded coordinator; a shared store is none.
    pub(super) database: Option<&'a Database>,
    pub(super) history: Arc<dyn HistoryStore>,
    pub(super) clock: Clock,
    pub(super) tasks: &'a TaskTracker,
    pub(super) metrics: LeaseMetrics,
    pub(super) guard_metrics: GuardMetrics,
    pub(super) registry: &'a Registry,
}

/// The coordinator, and what watches over its history where that is not in the store itself.
pub(super) type Started = (Arc<dyn Coordinator>, Option<Arc<Guard>>);

/// Starts it, and compares its history with the store's before anything is served.
pub(super) async fn start(parts: Parts<'_>) -> Result<Started, ServeError> {
    let Parts { config, database, history, clock, tasks, metrics, guard_metrics, registry } = parts;
    if !matches!(config, config::Coordinator::Etcd(_))
        && history.history().await.map_err(CoordinatorError::from)?.is_some()
    {
        return Err(ServeError::NotEtcd);
    }
    match config {
        config::Coordinator::Embedded => {
            let database = database.ok_or(ServeError::NoFile)?;
            Ok((Arc::new(Embedded::start(database, clock, tasks, metrics).await?), None))
        }
        config::Coordinator::Postgres(settings) => {
            let postgres = Postgres::start(settings, clock, tasks, metrics).await?;
            postgres.register_pool(registry)?;
            Ok((Arc::new(postgres), None))
        }
        config::Coordinator::Etcd(settings) => {
            let guarded = Guarded { history, metrics: guard_metrics };
            let etcd = Etcd::start(settings, Some(guarded), clock, tasks, metrics);
            etcd.register_endpoints(registry)?;
            etcd.check().await?;
            let guard = etcd.guard();
            Ok((Arc::new(etcd), guard))
        }
    }
}
