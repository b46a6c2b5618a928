//! The PostgreSQL coordinator: leases and tokens in a database that several gateways share.
//!
//! Owned here: the tables `fencegate_leases*`. A token comes from one sequence, which never goes
//! back, in the transaction that writes the lease. Expiry is judged by the database's clock inside
//! the transaction that acts on it, so gateways need not agree on the time. Waiters stand in one
//! queue for all gateways. Each verb is one function of the schema, one round trip and one
//! transaction, and needs no state of a session. Deliberately absent: a copy of the leases in
//! memory, and retries: whoever asked knows whether it may ask again.

mod access;
mod acquisition;
mod database;
mod places;
mod schema;
mod upkeep;
mod verbs;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prometheus::Registry;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::acquisition::Request;
use self::database::Database;
use self::places::Places;
use super::{
    Acquired, Coordinator, CoordinatorError, Holding, Lease, LeaseMetrics, Released, delivery,
};
use crate::batch::Batcher;
use crate::clock::Clock;
use crate::fence::{Epoch, Owner, Resource, Token};

pub use access::{InvalidPostgresUrl, PostgresAccess, PostgresSettings};
pub use schema::PostgresStartError;

/// Holders that are asked for in one call.
const BATCH_HOLDERS: usize = 512;

/// Issues leases and tokens from a PostgreSQL database.
#[derive(Debug)]
pub struct Postgres {
    shared: Arc<Shared>,
    holders: Batcher<Resource, Option<Lease>, CoordinatorError>,
    _upkeep: DropGuard,
}

/// What acquisitions, which outlive their callers, need as well.
#[derive(Debug)]
struct Shared {
    database: Database,
    clock: Clock,
    tasks: TaskTracker,
    metrics: LeaseMetrics,
    places: Places,
}

impl Postgres {
    /// Keeps leases in the database that `settings` name, whose schema it brings up to date. Its tasks end
    /// some time after it is dropped.
    ///
    /// # Errors
    /// The database does not answer, may forget what it confirms, or has a schema of another
    /// version.
    pub async fn start(
        settings: &PostgresSettings,
        clock: Clock,
        tasks: &TaskTracker,
        metrics: LeaseMetrics,
    ) -> Result<Postgres, PostgresStartError> {
        let database = Database::new(settings.access.options()?, clock);
        schema::prepare(&database).await?;
        let shared = Arc::new(Shared {
            database,
            clock,
            tasks: tasks.clone(),
            places: Places::new(metrics.waiters.clone()),
            metrics,
        });
        let stop = CancellationToken::new();
        tasks.spawn(upkeep::keep(Arc::clone(&shared), stop.clone()));
        tasks.spawn(upkeep::sweep(Arc::clone(&shared), stop.clone()));
        if let Some(listen) = &settings.listen {
            tasks.spawn(upkeep::listen(Arc::clone(&shared), listen.options()?, stop.clone()));
        }
        let for_holders = Arc::clone(&shared);
        let holders = Batcher::new(tasks, BATCH_HOLDERS, 1, move |resources| {
            let shared = Arc::clone(&for_holders);
            Box::pin(async move { shared.holders(&resources).await })
        });
        Ok(Postgres { shared, holders, _upkeep: stop.drop_guard() })
    }

    /// Registers what is counted of its connections.
    ///
    /// # Errors
    /// They are registered already.
    pub fn register_pool(&self, registry: &Registry) -> prometheus::Result<()> {
        self.shared.database.register(registry)
    }
}

#[async_trait]
impl Coordinator for Postgres {
    async fn acquire(
        &self,
        resource: Resource,
        owner: Owner,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Acquired, CoordinatorError> {
        let request = Request { resource, owner, ttl, wait };
        let (task, caller) = delivery::channel();
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

    /// Always the first: a database that went back to an earlier state is not noticed.
    fn epoch(&self) -> Epoch {
        Epoch::FIRST
    }

    async fn list(
        &self,
        after: Option<Resource>,
        limit: u32,
    ) -> Result<Vec<Lease>, CoordinatorError> {
        let database = self.shared.database.clone();
        delivery::to_the_end(&self.shared.tasks, async move {
            verbs::list(&database, after.as_ref(), limit).await
        })
        .await
    }

    async fn count(&self) -> Result<Option<u64>, CoordinatorError> {
        let database = self.shared.database.clone();
        delivery::to_the_end(
            &self.shared.tasks,
            async move { verbs::count(&database).await.map(Some) },
        )
        .await
    }
}

impl Shared {
    /// Those who wait here hear of it also if nobody listens to the database.
    fn expired(&self, leases: &[Lease]) {
        self.metrics.expired(leases);
        leases.iter().for_each(|lease| self.places.tell_first(&lease.resource));
    }

    async fn renew(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Option<Lease>, CoordinatorError> {
        let (renewed, expired) =
            verbs::renew(&self.database, &resource, &owner, token, ttl).await?;
        self.expired(&expired);
        if renewed.is_none() {
            self.metrics.renewal_refused(&resource, &owner, token);
        }
        Ok(renewed)
    }

    async fn release(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
    ) -> Result<Released, CoordinatorError> {
        let ((released, ended), expired) =
            verbs::release(&self.database, &resource, &owner, token).await?;
        self.expired(&expired);
        if let Some((lease, at)) = ended {
            self.metrics.released(&lease, at);
            self.places.tell_first(&lease.resource);
        }
        Ok(released)
    }

    /// As many answers as there are resources, in their order.
    async fn holders(
        &self,
        resources: &[Resource],
    ) -> Result<Vec<Option<Lease>>, CoordinatorError> {
        let (live, expired) = verbs::holders(&self.database, resources).await?;
        self.expired(&expired);
        let live: HashMap<&str, &Lease> =
            live.iter().map(|lease| (lease.resource.as_str(), lease)).collect();
        let holder = |resource: &Resource| live.get(resource.as_str()).copied().cloned();
        Ok(resources.iter().map(holder).collect())
    }
}

#[cfg(test)]
mod tests;
