//! The lease of one run of the gateway on its own right to admit, where several share a store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Boottime;
use crate::fence::{Grant, Mark, OverGrant, Rank, Resource};

/// Until when this run may admit and send. It is prolonged by each renewal in the store, and once ended it
/// stays so: who comes after it has a lease of its own.
///
/// Invariant: before the deadline no other instance takes this one for dead, since they count its
/// time from a later moment.
#[derive(Debug)]
pub struct InstanceLease(AtomicU64);

impl InstanceLease {
    /// One that never runs out, for the only instance of its store.
    #[must_use]
    pub const fn unlimited() -> InstanceLease {
        InstanceLease(AtomicU64::new(u64::MAX))
    }

    /// One that runs out at `deadline`.
    #[must_use]
    pub const fn until(deadline: Boottime) -> InstanceLease {
        InstanceLease(AtomicU64::new(deadline.as_nanos()))
    }

    /// Puts the deadline off. Only whoever renews calls this and [`InstanceLease::end`].
    pub fn prolong(&self, deadline: Boottime) {
        self.0.store(deadline.as_nanos(), Ordering::Release);
    }

    /// Ends it for good.
    pub fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether this run may admit and send.
    #[must_use]
    pub fn is_live(&self, now: Boottime) -> bool {
        now.as_nanos() < self.0.load(Ordering::Acquire)
    }

    /// Whether it can run out at all.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.0.load(Ordering::Relaxed) != u64::MAX
    }

    /// How long it lasts yet.
    #[must_use]
    pub fn left(&self, now: Boottime) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire).saturating_sub(now.as_nanos()))
    }
}

/// A grant of this instance that has to go: a newer token waits elsewhere.
#[derive(Clone, Debug)]
pub struct Revocation {
    /// Whose fence.
    pub resource: Resource,
    /// The grant.
    pub grant: OverGrant,
    /// The mark that stands now.
    pub mark: Mark,
    /// How long the newer write's route lets older ones finish before they are cut; `None`: it cuts
    /// nobody.
    pub drain: Option<Duration>,
}

/// What an instance has in memory of one resource, to be written into a store that may have lost it.
#[derive(Clone, Debug)]
pub struct Remembered {
    /// Whose fence.
    pub resource: Resource,
    /// The mark.
    pub mark: Mark,
    /// Its grants.
    pub grants: Vec<(Rank, Grant)>,
}

/// An instance as the one sees it that keeps its lease in the store.
pub trait Member: Send + Sync {
    /// Stop admitting what was revoked, and give the grant back when its writes are over. May be said
    /// more than once of a grant.
    fn revoked(&self, revocations: Vec<Revocation>);

    /// Another instance gave a grant on this resource back; `None`: on some resource.
    fn given_back(&self, resource: Option<&Resource>);

    /// All that is in memory.
    fn remembered(&self) -> Vec<Remembered>;

    /// The lease is over: cut what is in flight and forget everything. Answers the grants whose
    /// writes may still take effect. `lease` is that of the run that follows.
    fn start_over(&self, lease: std::sync::Arc<InstanceLease>) -> Vec<(Resource, Rank)>;
}
