//! A coordinator whose failed calls are counted, whichever it is.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use tokio_util::sync::CancellationToken;

use super::{Acquired, Coordinator, CoordinatorError, Holding, Lease, Released};
use crate::fence::{Epoch, Owner, Resource, Token};

/// How often leases are counted: for that a coordinator looks at all of them.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// See the module.
pub struct Measured {
    inner: Arc<dyn Coordinator>,
    acquire: IntCounter,
    renew: IntCounter,
    release: IntCounter,
    holder: IntCounter,
    show: IntCounter,
    list: IntCounter,
    count: IntCounter,
}

impl Measured {
    /// Registers the counts of its failures.
    ///
    /// # Errors
    /// The name is registered already.
    pub fn new(inner: Arc<dyn Coordinator>, registry: &Registry) -> prometheus::Result<Measured> {
        let errors = IntCounterVec::new(
            Opts::new(
                "fencegate_coordinator_errors_total",
                "Calls of the coordinator that failed, by operation.",
            ),
            &["operation"],
        )?;
        registry.register(Box::new(errors.clone()))?;
        let of = |operation| errors.with_label_values(&[operation]);
        Ok(Measured {
            inner,
            acquire: of("acquire"),
            renew: of("renew"),
            release: of("release"),
            holder: of("holder"),
            show: of("show"),
            list: of("list"),
            count: of("count"),
        })
    }

    /// Counts the live leases every now and then, where the coordinator can tell, until `stop`.
    ///
    /// # Errors
    /// The name is registered already.
    pub async fn count_leases(
        &self,
        registry: &Registry,
        stop: CancellationToken,
    ) -> prometheus::Result<()> {
        let held = IntGauge::new("fencegate_leases_held", "Live leases at the coordinator.")?;
        let mut is_registered = false;
        loop {
            match self.count().await {
                Ok(None) => return Ok(()),
                Ok(Some(count)) => held.set(count.cast_signed()),
                // Counted as an error; the number stays as it was.
                Err(_) => {}
            }
            if !is_registered {
                registry.register(Box::new(held.clone()))?;
                is_registered = true;
            }
            if stop.run_until_cancelled(tokio::time::sleep(COUNT_EVERY)).await.is_none() {
                return Ok(());
            }
        }
    }
}

fn counted<T>(
    errors: &IntCounter,
    answer: Result<T, CoordinatorError>,
) -> Result<T, CoordinatorError> {
    answer.inspect_err(|_| errors.inc())
}

#[async_trait]
impl Coordinator for Measured {
    async fn acquire(
        &self,
        resource: Resource,
        owner: Owner,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Acquired, CoordinatorError> {
        counted(&self.acquire, self.inner.acquire(resource, owner, ttl, wait).await)
    }

    async fn renew(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Option<Lease>, CoordinatorError> {
        counted(&self.renew, self.inner.renew(resource, owner, token, ttl).await)
    }

    async fn release(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
    ) -> Result<Released, CoordinatorError> {
        counted(&self.release, self.inner.release(resource, owner, token).await)
    }

    async fn holder(&self, resource: Resource) -> Result<Holding, CoordinatorError> {
        counted(&self.holder, self.inner.holder(resource).await)
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    async fn show(&self, resource: Resource) -> Result<Option<Lease>, CoordinatorError> {
        counted(&self.show, self.inner.show(resource).await)
    }

    async fn list(
        &self,
        after: Option<Resource>,
        limit: u32,
    ) -> Result<Vec<Lease>, CoordinatorError> {
        counted(&self.list, self.inner.list(after, limit).await)
    }

    async fn count(&self) -> Result<Option<u64>, CoordinatorError> {
        counted(&self.count, self.inner.count().await)
    }
}
