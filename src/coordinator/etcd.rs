//! Leases in etcd, in the layout of etcd's own lock, so that workers which lock with the standard
//! packages are fenced with no library of ours.
//!
//! The holder of a lease is the key with the lowest create revision below the resource's place, and
//! that revision is the token: etcd gives it out once, it rises, and a waiter's is higher than the
//! holder's. Never a token is the revision of a response's header, which two clients can both see.
//! Deliberately absent: etcd's lock service, which answers success to waiters whose lease is gone;
//! and a copy of the leases in memory. `etcd_client` is imported below this file and nowhere else.

mod acquisition;
mod changes;
mod connection;
mod deletions;
mod given;
mod layout;
mod leases;
mod reads;
pub(super) mod sentinel;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prometheus::Registry;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::acquisition::Request;
use self::connection::Connection;
use self::given::Given;
use self::layout::Keys;
use self::leases::Leases;
use self::sentinel::Sentinel;
use super::guard::{self, Guard, GuardMetrics};
use super::queue::Queues;
use super::{
    Acquired, Coordinator, CoordinatorError, Holding, Lease, LeaseMetrics, Released, delivery,
};
use crate::batch::{Batcher, Closed};
use crate::clock::Clock;
use crate::fence::{Epoch, Owner, Resource, Token};
use crate::store::HistoryStore;

pub use settings::{EtcdSettings, EtcdTls, EtcdUser, Layout};

/// Holders that are asked for in one request; etcd takes at most 128 operations in one.
const BATCH_HOLDERS: usize = 100;

/// Issues leases and tokens from etcd.
#[derive(Debug)]
pub struct Etcd {
    shared: Arc<Shared>,
    holders: Batcher<Resource, Holding, CoordinatorError>,
    _watching: DropGuard,
}

/// What tasks, which outlive their callers, need as well.
#[derive(Debug)]
struct Shared {
    leases: Leases,
    keys: Keys,
    given: Given,
    /// What our keys say who wrote them; of this coordinator alone.
    id: String,
    clock: Clock,
    tasks: TaskTracker,
    metrics: LeaseMetrics,
    queues: Queues,
    /// Of a gateway; workers have no store to guard.
    guard: Option<Arc<Guard>>,
}

/// What a gateway's coordinator watches over, so that etcd's history and the store's go together.
pub struct Guarded {
    /// Where what is known of etcd's history is kept, and the marks, which are rebuilt if they turn out to be
    /// older ones.
    pub history: Arc<dyn HistoryStore>,
    /// What is told of it.
    pub metrics: GuardMetrics,
}

impl Etcd {
    /// Connects when it is first asked; an etcd that is down now may be up then. Its tasks end some
    /// time after it is dropped. Without `guarded` its epoch is always the first one, which is
    /// enough for workers.
    #[must_use]
    pub fn start(
        settings: &EtcdSettings,
        guarded: Option<Guarded>,
        clock: Clock,
        tasks: &TaskTracker,
        metrics: LeaseMetrics,
    ) -> Etcd {
        let connection = Arc::new(Connection::new(settings));
        let keys = Keys::new(&settings.prefix, settings.layout);
        let guard = guarded.map(|Guarded { history, metrics }| {
            let sentinel = Sentinel::new(Arc::clone(&connection), keys.clone());
            Arc::new(Guard::new(sentinel, history, metrics))
        });
        let shared = Arc::new(Shared {
            leases: Leases::new(connection, clock),
            keys,
            given: Given::default(),
            id: uuid::Uuid::new_v4().simple().to_string(),
            clock,
            tasks: tasks.clone(),
            queues: Queues::new(metrics.waiters.clone()),
            metrics,
            guard,
        });
        let stop = CancellationToken::new();
        tasks.spawn(deletions::watch(Arc::clone(&shared), None, stop.clone()));
        let for_holders = Arc::clone(&shared);
        let holders = Batcher::new(tasks, BATCH_HOLDERS, 1, move |resources| {
            let shared = Arc::clone(&for_holders);
            Box::pin(async move { shared.holders(&resources).await })
        });
        if let Some(guard) = &shared.guard {
            tasks.spawn(guard::watch(Arc::clone(guard), Arc::clone(&shared), stop.clone()));
        }
        Etcd { shared, holders, _watching: stop.drop_guard() }
    }

    /// Compares etcd's history with the one that the store knows, and, if it is the store that is
    /// older, rebuilds its marks first. A gateway calls this before it serves.
    ///
    /// # Errors
    /// etcd or the store did not answer. That the history is another one is no error here: it shows
    /// in every answer of [`Coordinator::holder`].
    pub async fn check(&self) -> Result<(), CoordinatorError> {
        let Some(guard) = &self.shared.guard else { return Ok(()) };
        match guard.check(&*self.shared).await {
            Ok(_) | Err(CoordinatorError::Changed(_)) => Ok(()),
            Err(unavailable) => Err(unavailable),
        }
    }

    /// Registers what is counted of its endpoints.
    ///
    /// # Errors
    /// The name is registered already.
    pub fn register_endpoints(&self, registry: &Registry) -> prometheus::Result<()> {
        self.shared.leases.connection().register(registry)
    }

    /// What watches over etcd's history, in a gateway.
    #[must_use]
    pub fn guard(&self) -> Option<Arc<Guard>> {
        self.shared.guard.clone()
    }
}

#[async_trait]
impl Coordinator for Etcd {
    async fn acquire(
        &self,
        resource: Resource,
        owner: Owner,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Acquired, CoordinatorError> {
        let (task, caller) = delivery::channel();
        let request = Request { resource, owner, ttl, wait };
        self.shared.tasks.spawn(acquisition::run(Arc::clone(&self.shared), request, task));
        caller.receive().await
    }

    async fn renew(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Option<Lease>, CoordinatorError> {
        let shared = Arc::clone(&self.shared);
        delivery::to_the_end(&self.shared.tasks, async move {
            let renewed = shared.renew(&resource, &owner, token, ttl).await?;
            if renewed.is_none() {
                shared.metrics.renewal_refused(&resource, &owner, token);
            }
            Ok(renewed)
        })
        .await
    }

    async fn release(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
    ) -> Result<Released, CoordinatorError> {
        let shared = Arc::clone(&self.shared);
        delivery::to_the_end(&self.shared.tasks, async move {
            Ok(shared.release(resource, owner, token).await?)
        })
        .await
    }

    async fn holder(&self, resource: Resource) -> Result<Holding, CoordinatorError> {
        self.holders.call(resource).await
    }

    fn epoch(&self) -> Epoch {
        self.shared.guard.as_ref().map_or(Epoch::FIRST, |guard| guard.epoch())
    }

    async fn show(&self, resource: Resource) -> Result<Option<Lease>, CoordinatorError> {
        Ok(self.shared.show(&resource).await?)
    }

    async fn list(
        &self,
        after: Option<Resource>,
        limit: u32,
    ) -> Result<Vec<Lease>, CoordinatorError> {
        Ok(self.shared.list(after.as_ref(), limit as usize).await?)
    }

    /// Waiters have keys as well, and only their order tells who is one.
    async fn count(&self) -> Result<Option<u64>, CoordinatorError> {
        Ok(None)
    }
}

impl From<Closed> for CoordinatorError {
    fn from(_: Closed) -> CoordinatorError {
        CoordinatorError::Unavailable("the coordinator is closed".to_owned())
    }
}

#[cfg(test)]
mod tests;
