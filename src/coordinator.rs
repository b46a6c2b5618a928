//! The coordinator: who holds which lease, and which token it got with it.
//!
//! The gateway asks it only when a token is new. A lease ends by release or expiry; nothing
//! revives an ended lease; a token is handed out once and never again, to nobody.

#[cfg(test)]
mod contract;
mod delivery;
mod embedded;
pub mod etcd;
mod guard;
mod measured;
mod metrics;
mod postgres;
mod queue;

use std::time::Duration;

use async_trait::async_trait;

use crate::clock::WallTime;
use crate::fence::{Epoch, Owner, Resource, Token};

pub use embedded::Embedded;
pub use etcd::Etcd;
pub use guard::{Adopted, Guard, GuardMetrics, GuardView};
pub use measured::Measured;
pub use metrics::LeaseMetrics;
pub use postgres::{
    InvalidPostgresUrl, Postgres, PostgresAccess, PostgresSettings, PostgresStartError,
};

/// Nothing is known about the lease.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// It did not answer.
    #[error("the coordinator did not answer: {0}")]
    Unavailable(String),
    /// It answers out of another history than the one that is known: its tokens cannot be compared with
    /// those that it gave before, until an operator says that they may.
    #[error("the coordinator has another history than before: {0}")]
    Changed(String),
}

/// A live lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What it is for.
    pub resource: Resource,
    /// Who has it.
    pub owner: Owner,
    /// Its fencing token.
    pub token: Token,
    /// Its time to live from the last renewal.
    pub ttl: Duration,
    /// When it was acquired.
    pub acquired_at: WallTime,
    /// When it ends unless it is renewed.
    pub expires_at: WallTime,
}

/// Who has a lease, at the moment of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The live lease, if there is one.
    pub lease: Option<Lease>,
    /// The history that its token belongs to.
    pub epoch: Epoch,
}

/// The end of an acquisition.
#[derive(Clone, Debug)]
pub enum Acquired {
    /// The lease is the caller's.
    Granted(Lease),
    /// Another owner has it, and did not let go of it within the wait.
    Held(Lease),
}

/// The end of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lease is over.
    Released,
    /// The lease is another owner's, or has another token.
    OwnerMismatch,
    /// There is no such lease.
    NotFound,
}

/// Issues leases and tokens.
#[async_trait]
pub trait Coordinator: Send + Sync + 'static {
    /// Acquires the lease, waiting up to `wait` in the order of arrival (FIFO). The same owner
    /// acquiring again gets a new, higher token at once. If the caller drops the future after a token
    /// was issued, the lease is released: the token is a gap that grants nothing.
    async fn acquire(
        &self,
        resource: Resource,
        owner: Owner,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Acquired, CoordinatorError>;

    /// Prolongs a live lease of this owner and token to `ttl` from now (`None`: its own TTL).
    /// `Ok(None)`: it is over or was never the caller's.
    async fn renew(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Option<Lease>, CoordinatorError>;

    /// Ends a live lease of this owner and token.
    async fn release(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
    ) -> Result<Released, CoordinatorError>;

    /// The resource's live lease. One request; calls that arrive together share one.
    async fn holder(&self, resource: Resource) -> Result<Holding, CoordinatorError>;

    /// The present history, as far as it is known without asking.
    fn epoch(&self) -> Epoch;

    /// The same for people: with the times of a lease that another program holds in etcd, at the
    /// price of a second request.
    async fn show(&self, resource: Resource) -> Result<Option<Lease>, CoordinatorError> {
        Ok(self.holder(resource).await?.lease)
    }

    /// Live leases in the order of their resources, after `after`, at most `limit`.
    async fn list(
        &self,
        after: Option<Resource>,
        limit: u32,
    ) -> Result<Vec<Lease>, CoordinatorError>;

    /// How many live leases there are; `None` where that cannot be told from those who wait.
    async fn count(&self) -> Result<Option<u64>, CoordinatorError>;
}
