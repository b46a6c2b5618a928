//! PostgreSQL: the fence store that several instances share.
//!
//! Owned here: the connections and what is known of the server. Every operation is one function of
//! `migrations/postgres`, called with one JSON text in one message and therefore in one transaction and one
//! round trip. That is the simple query protocol on purpose: it needs no statement that outlives its
//! transaction, so it works through a pooler in transaction mode as well. Each call is a task that ends by
//! itself, whoever stops waiting for it, and is repeated while connections fail, as every operation may be.
//!
//! Invariant: an answer counts only if it comes from the server, and the life of that server, that this
//! instance has told all it remembers ([`Keeper`]). After a fail-over, a restart or a restored backup nothing
//! is granted before that was done again.
//! Deliberately absent: any decision by the database's clock.

mod at_hand;
mod call;
mod connect;
mod fences;
mod history;
mod keeper;
mod listen;
mod metrics;
mod migrate;
mod others;
#[cfg(test)]
mod tests;
mod trust;
mod url;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::Registry;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use self::at_hand::AtHand;
use self::others::Others;
use self::trust::Trust;
use super::InstanceLease;
use crate::clock::Clock;
use crate::metrics::{Connections, PoolMetrics, StoreMetrics};
use crate::postgres_pool;

pub use connect::{ConnectError, Migrate, PostgresSettings, migrate};
pub use fences::PostgresFences;
pub use keeper::{Keeper, Kept};
pub use metrics::InstanceMetrics;
pub use migrate::MigrateOutcome;
pub use url::PostgresUrl;

/// A connection that is not there by then fails the call.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// So long a call waits until the server that answered it was told what this instance remembers.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// A handle to the database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Postgres(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    at_hand: AtHand,
    trust: Trust,
    /// For what a pooler cannot do.
    direct: PgConnectOptions,
    clock: Clock,
    tasks: TaskTracker,
    metrics: StoreMetrics,
    pool_metrics: PoolMetrics,
    server: watch::Sender<Server>,
    /// Something about this instance's lease has to be looked at now.
    doubtful: Notify,
    others: Mutex<Others>,
    present: Mutex<Arc<InstanceLease>>,
}

/// Which server, and which of its lives, was told what this instance remembers. Empty: none yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
struct Server(Arc<str>);

impl Postgres {
    /// Connects, migrates where the settings say so, and checks that the server keeps what it confirms.
    ///
    /// # Errors
    /// Says what is wrong with the server or its settings and how to mend it.
    pub async fn open(
        settings: &PostgresSettings,
        clock: Clock,
        tasks: &TaskTracker,
        metrics: StoreMetrics,
    ) -> Result<Postgres, ConnectError> {
        let (pooled, direct) = connect::check(settings).await?;
        let trust = Trust::new(clock);
        let trusted = trust.clone();
        let pool_metrics = PoolMetrics::new("store");
        let connected = pool_metrics.clone();
        let pool = postgres_pool::options()
            .before_acquire(move |_, connection| {
                let is_trusted = trusted.is_in(connection.age);
                Box::pin(async move { Ok(is_trusted) })
            })
            .after_connect(move |_, _| {
                connected.connected();
                Box::pin(async { Ok(()) })
            })
            .max_connections(settings.connections)
            .acquire_timeout(CONNECT_WITHIN)
            // It would double the round trips. A connection that is dead makes the call try again.
            .test_before_acquire(false)
            .connect_lazy_with(pooled);
        Ok(Postgres(Arc::new(Inner {
            at_hand: AtHand::new(pool.clone(), trust.clone(), clock),
            pool,
            trust,
            direct,
            clock,
            tasks: tasks.clone(),
            metrics,
            pool_metrics,
            server: watch::Sender::default(),
            doubtful: Notify::new(),
            others: Mutex::default(),
            present: Mutex::new(Arc::new(InstanceLease::pending())),
        })))
    }

    /// Registers what is counted of its connections.
    ///
    /// # Errors
    /// They are registered already.
    pub fn register_pool(&self, registry: &Registry) -> prometheus::Result<()> {
        let store = self.clone();
        let limit = self.0.pool.options().get_max_connections();
        self.0.pool_metrics.register(registry, limit, move || Connections {
            all: store.0.pool.size(),
            idle: store.0.pool.num_idle() + store.0.at_hand.resting(),
        })
    }

    fn server(&self) -> Server {
        self.0.server.borrow().clone()
    }

    fn set_server(&self, server: Server) {
        self.0.server.send_replace(server);
    }

    /// Whether an answer of this server counts. If not, the keeper of the lease is told.
    fn is_known(&self, server: &Server) -> bool {
        let is_known = *self.0.server.borrow() == *server;
        if !is_known {
            self.0.doubtful.notify_one();
        }
        is_known
    }

    /// Waits until this server was told what this instance remembers. False: it was not, in good time.
    async fn until_known(&self, server: &Server) -> bool {
        let mut known = self.0.server.subscribe();
        timeout(KNOWN_WITHIN, known.wait_for(|known| known == server)).await.is_ok()
    }

    /// The lease of the present run.
    fn present(&self) -> Arc<InstanceLease> {
        self.0.present.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_present(&self, lease: &Arc<InstanceLease>) {
        *self.0.present.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(lease);
    }

    fn others(&self) -> std::sync::MutexGuard<'_, Others> {
        self.0.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
