//! Where a worker's leases come from: the lease API, or a coordinator itself.
//!
//! Invariant: both say the same in the same words, so that whoever holds a lease need not know
//! where it came from. Deliberately absent: retries; see [`HeldLease`](super::HeldLease).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio_util::task::TaskTracker;

use super::client::{InvalidLeaseUrl, LeaseClient, LeaseError};
use super::wire::{Holder, Lease, LeasePage};
use crate::clock::Clock;
use crate::coordinator::etcd::EtcdSettings;
use crate::coordinator::{
    self, Acquired, Coordinator, CoordinatorError, Etcd, LeaseMetrics, Postgres, PostgresSettings,
    PostgresStartError, Released,
};
use crate::fence::{Owner, Resource, Token};
use crate::problem::Code;

/// A source of leases. Cheap to clone.
#[derive(Clone)]
pub struct Leases(Source);

#[derive(Clone)]
enum Source {
    Api(LeaseClient),
    Coordinator(Arc<dyn Coordinator>),
}

impl Leases {
    /// From the lease API of a gateway at `base`, for example `http://127.0.0.1:8081`. For a
    /// credential, or authorities of one's own, make a [`LeaseClient`] and take [`Leases::from`].
    ///
    /// # Errors
    /// `base` is no URL of HTTP without query and fragment.
    pub fn api(base: &str) -> Result<Leases, InvalidLeaseUrl> {
        LeaseClient::new(base).map(Leases::from)
    }

    /// From etcd, without a gateway in between. It is connected to when a lease is first asked
    /// for. Has to be called in a tokio runtime, in which its tasks then run.
    #[must_use]
    pub fn etcd(settings: &EtcdSettings) -> Leases {
        let etcd = Etcd::start(settings, None, Clock::new(), &TaskTracker::new(), unseen_metrics());
        Leases::coordinator(Arc::new(etcd))
    }

    /// From a PostgreSQL database, without a gateway in between.
    ///
    /// # Errors
    /// The database does not answer, or cannot keep leases.
    pub async fn postgres(settings: &PostgresSettings) -> Result<Leases, PostgresStartError> {
        let tasks = TaskTracker::new();
        let postgres = Postgres::start(settings, Clock::new(), &tasks, unseen_metrics()).await?;
        Ok(Leases::coordinator(Arc::new(postgres)))
    }

    /// From a coordinator that was made elsewhere, for example with metrics that are exported.
    #[must_use]
    pub fn coordinator(coordinator: Arc<dyn Coordinator>) -> Leases {
        Leases(Source::Coordinator(coordinator))
    }

    /// Acquires the lease, waiting up to `wait` for a holder to let go. Dropping the future gives
    /// the place in the queue up, or releases the lease.
    ///
    /// # Errors
    /// [`LeaseError::Held`], [`LeaseError::Unreachable`] or [`LeaseError::Refused`].
    pub async fn acquire(
        &self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Lease, LeaseError> {
        match &self.0 {
            Source::Api(client) => client.acquire(resource, owner, ttl, wait).await,
            Source::Coordinator(coordinator) => {
                match coordinator.acquire(resource.clone(), owner.clone(), ttl, wait).await? {
                    Acquired::Granted(lease) => Ok(lease.into()),
                    Acquired::Held(lease) => Err(LeaseError::Held { holder: lease.into() }),
                }
            }
        }
    }

    /// Prolongs the lease to `ttl` from when it was asked for; `None`: to its own TTL.
    ///
    /// # Errors
    /// [`LeaseError::Lost`], [`LeaseError::Unreachable`] or [`LeaseError::Refused`].
    pub async fn renew(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Lease, LeaseError> {
        match &self.0 {
            Source::Api(client) => client.renew(resource, owner, token, ttl).await,
            Source::Coordinator(coordinator) => {
                let lease = coordinator.renew(resource.clone(), owner.clone(), token, ttl).await?;
                lease.map(Lease::from).ok_or_else(|| LeaseError::Lost {
                    detail: format!("{owner} has no live lease with token {token}"),
                })
            }
        }
    }

    /// Ends the lease.
    ///
    /// # Errors
    /// [`LeaseError::OwnerMismatch`], [`LeaseError::NotFound`], [`LeaseError::Unreachable`] or
    /// [`LeaseError::Refused`].
    pub async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Token,
    ) -> Result<(), LeaseError> {
        let coordinator = match &self.0 {
            Source::Api(client) => return client.release(resource, owner, token).await,
            Source::Coordinator(coordinator) => coordinator,
        };
        match coordinator.release(resource.clone(), owner.clone(), token).await? {
            Released::Released => Ok(()),
            Released::OwnerMismatch => Err(LeaseError::OwnerMismatch {
                detail: "the lease has another owner or another token".to_owned(),
            }),
            Released::NotFound => Err(nobody()),
        }
    }

    /// The resource's live lease.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`], [`LeaseError::Unreachable`] or [`LeaseError::Refused`].
    pub async fn show(&self, resource: &Resource) -> Result<Lease, LeaseError> {
        match &self.0 {
            Source::Api(client) => client.show(resource).await,
            Source::Coordinator(coordinator) => {
                let lease = coordinator.show(resource.clone()).await?;
                lease.map(Lease::from).ok_or_else(nobody)
            }
        }
    }

    /// Live leases in the order of their resources, after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`LeaseError::Unreachable`] or [`LeaseError::Refused`].
    pub async fn list(
        &self,
        after: Option<&Resource>,
        limit: u32,
    ) -> Result<LeasePage, LeaseError> {
        match &self.0 {
            Source::Api(client) => client.list(after, limit).await,
            Source::Coordinator(coordinator) => {
                let leases = coordinator.list(after.cloned(), limit).await?;
                let is_full = u32::try_from(leases.len()).is_ok_and(|found| found >= limit);
                let next = leases.last().filter(|_| is_full).map(|lease| lease.resource.clone());
                Ok(LeasePage { leases: leases.into_iter().map(Lease::from).collect(), next })
            }
        }
    }
}

impl From<LeaseClient> for Leases {
    fn from(client: LeaseClient) -> Leases {
        Leases(Source::Api(client))
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Api(client) => f.debug_tuple("Leases").field(client).finish(),
            Source::Coordinator(_) => f.debug_tuple("Leases").finish_non_exhaustive(),
        }
    }
}

impl From<coordinator::Lease> for Lease {
    fn from(lease: coordinator::Lease) -> Lease {
        Lease {
            resource: lease.resource,
            owner: lease.owner,
            token: lease.token,
            lease: Some(format!("{:x}", lease.token.get())),
            ttl_ms: u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX),
            acquired_at: lease.acquired_at.to_string(),
            expires_at: lease.expires_at.to_string(),
        }
    }
}

impl From<coordinator::Lease> for Holder {
    fn from(lease: coordinator::Lease) -> Holder {
        Holder {
            owner: lease.owner.to_string(),
            token: lease.token,
            expires_at: lease.expires_at.to_string(),
        }
    }
}

/// Whether it was asked is not known: it may have done what it did not confirm.
impl From<CoordinatorError> for LeaseError {
    fn from(error: CoordinatorError) -> LeaseError {
        match error {
            CoordinatorError::Unavailable(reason) => LeaseError::Unreachable { sent: true, reason },
            CoordinatorError::Changed(detail) => {
                LeaseError::Refused { code: Code::CoordinatorChanged.as_str().to_owned(), detail }
            }
        }
    }
}

fn nobody() -> LeaseError {
    LeaseError::NotFound { detail: "nobody holds this lease".to_owned() }
}

/// For a worker that exports none.
fn unseen_metrics() -> LeaseMetrics {
    LeaseMetrics::register(&Registry::new()).expect("a new registry has no series")
}
