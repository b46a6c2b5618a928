//! The embedded coordinator: leases and tokens in the same SQLite file as the fences.
//!
//! Owned here: the tables `leases` and `token_sequence`, and the queues of those who wait. A token
//! comes from one sequence for all resources and is on disk before anybody hears of it. Expiry is
//! judged inside the transaction that acts on it, by a clock that counts suspension, so that no
//! request revives a lease however long it was under way. Deliberately absent: a copy of the
//! leases in memory; the file is the truth, and it is asked only when a token is new.

mod acquisition;
mod rows;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use sqlx::SqliteConnection;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::acquisition::Request;
use super::queue::Queues;
use super::{
    Acquired, Coordinator, CoordinatorError, Holding, Lease, LeaseMetrics, Released, delivery,
};
use crate::batch::Batcher;
use crate::clock::{Clock, WallTime};
use crate::fence::{Epoch, Owner, Resource, Token};
use crate::metrics::Operation;
use crate::store::{BATCH_CALLS, Database, StoreError};

/// How often expired leases are looked for that nobody asked about.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Leases that one transaction of a sweep deletes at the most: others wait for it.
const SWEEP_LEASES: u32 = 256;

/// Issues leases and tokens from the SQLite store.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    holders: Batcher<Resource, Option<Lease>, StoreError>,
    _sweeping: DropGuard,
}

/// What acquisitions, which outlive their callers, need as well.
#[derive(Debug)]
struct Shared {
    database: Database,
    clock: Clock,
    tasks: TaskTracker,
    metrics: LeaseMetrics,
    queues: Queues,
}

impl Embedded {
    /// Keeps leases in `database`. Its tasks end some time after it is dropped.
    ///
    /// # Errors
    /// The leases that are there could not be brought in line with the clock.
    pub async fn start(
        database: &Database,
        clock: Clock,
        tasks: &TaskTracker,
        metrics: LeaseMetrics,
    ) -> Result<Embedded, CoordinatorError> {
        database
            .call(Operation::Lease, move |connection| {
                Box::pin(rows::clamp(connection, clock.wall()))
            })
            .await?;
        let stop = CancellationToken::new();
        tasks.spawn(sweep(database.clone(), clock, metrics.clone(), stop.clone()));
        let shared = Arc::new(Shared {
            database: database.clone(),
            clock,
            tasks: tasks.clone(),
            queues: Queues::new(metrics.waiters.clone()),
            metrics,
        });
        let for_holders = Arc::clone(&shared);
        let holders = Batcher::new(tasks, BATCH_CALLS, 1, move |resources| {
            let shared = Arc::clone(&for_holders);
            Box::pin(async move { shared.holders(resources).await })
        });
        Ok(Embedded { shared, holders, _sweeping: stop.drop_guard() })
    }
}

#[async_trait]
impl Coordinator for Embedded {
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
            shared.renew(resource, owner, token, ttl).await
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
            shared.release(resource, owner, token).await
        })
        .await
    }

    async fn holder(&self, resource: Resource) -> Result<Holding, CoordinatorError> {
        Ok(Holding { lease: self.holders.call(resource).await?, epoch: Epoch::FIRST })
    }

    /// The sequence of tokens is in the same file as the marks: they never part.
    fn epoch(&self) -> Epoch {
        Epoch::FIRST
    }

    async fn list(
        &self,
        after: Option<Resource>,
        limit: u32,
    ) -> Result<Vec<Lease>, CoordinatorError> {
        let clock = self.shared.clock;
        let list = self.shared.database.call(Operation::List, move |connection| {
            Box::pin(async move { rows::list(connection, clock.wall(), after, limit).await })
        });
        Ok(list.await?)
    }

    async fn count(&self) -> Result<Option<u64>, CoordinatorError> {
        let clock = self.shared.clock;
        let count = self.shared.database.call(Operation::List, move |connection| {
            Box::pin(rows::count(connection, clock.wall()))
        });
        Ok(Some(count.await?))
    }
}

impl Shared {
    async fn renew(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Option<Lease>, CoordinatorError> {
        let (name, claimant) = (resource.clone(), owner.clone());
        let renewed = self
            .call(move |connection, now| {
                Box::pin(rows::renew(connection, now, name, claimant, token, ttl))
            })
            .await?;
        match &renewed {
            // It may end earlier than the head of the queue was told.
            Some(_) if ttl.is_some() => self.queues.tell_head(&resource),
            Some(_) => {}
            None => self.metrics.renewal_refused(&resource, &owner, token),
        }
        Ok(renewed)
    }

    async fn release(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
    ) -> Result<Released, CoordinatorError> {
        let (released, lease) = self
            .call(move |connection, now| {
                Box::pin(rows::release(connection, now, resource, owner, token))
            })
            .await?;
        if let Some(lease) = lease {
            self.metrics.released(&lease, self.clock.wall());
            self.queues.tell_head(&lease.resource);
        }
        Ok(released)
    }

    async fn holders(&self, resources: Vec<Resource>) -> Result<Vec<Option<Lease>>, StoreError> {
        let clock = self.clock;
        let (resources, seen) = self
            .database
            .call(Operation::Holder, move |connection| {
                Box::pin(async move {
                    let seen = rows::look(connection, clock.wall(), &resources).await?;
                    Ok((resources, seen))
                })
            })
            .await?;
        self.metrics.expired(&seen.expired);
        let live: HashMap<&str, &Lease> =
            seen.live.iter().map(|lease| (lease.resource.as_str(), lease)).collect();
        let holder = |resource: &Resource| live.get(resource.as_str()).copied().cloned();
        Ok(resources.iter().map(holder).collect())
    }

    /// Does `work` in a transaction; it is told the time of the transaction, and answers, beside
    /// what was asked, the leases that it found expired.
    async fn call<T, F>(&self, work: F) -> Result<T, CoordinatorError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(
                &'c mut SqliteConnection,
                WallTime,
            ) -> BoxFuture<'c, Result<(T, Vec<Lease>), sqlx::Error>>
            + Send
            + 'static,
    {
        let clock = self.clock;
        let (answer, expired) = self
            .database
            .call(Operation::Lease, move |connection| work(connection, clock.wall()))
            .await?;
        self.metrics.expired(&expired);
        Ok(answer)
    }
}

/// Deletes expired leases until told to stop. Without any it is one look into an index.
async fn sweep(database: Database, clock: Clock, metrics: LeaseMetrics, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let swept = database
            .call(Operation::Lease, move |connection| {
                Box::pin(rows::sweep(connection, clock.wall(), SWEEP_LEASES))
            })
            .await;
        match swept {
            Ok(expired) => {
                metrics.expired(&expired);
                if expired.len() == SWEEP_LEASES as usize {
                    ticks.reset_immediately();
                }
            }
            Err(error) => tracing::warn!(%error, "expired leases were not swept; trying again"),
        }
    }
}

#[cfg(test)]
mod tests;
