//! The lease of one run of the gateway on its own right to admit, where several share a store.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Boottime;
use crate::fence::{Grant, Mark, OverGrant, Rank, Resource};

/// Names one run of a gateway in its store. No two runs ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(i64);

impl InstanceId {
    /// From a database column.
    #[must_use]
    pub const fn from_i64(number: i64) -> InstanceId {
        InstanceId(number)
    }

    /// For a database column.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0
    }
}

impl std::fmt::Display for InstanceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The right of one run to admit and send: under which name, and until when. It is prolonged by each renewal
/// in the store, and once ended it stays so: who comes after it has a lease of its own. Whatever is asked of
/// the store for a write is asked in the name of the lease that its place in memory came into being under,
/// so that what a past run still has in hand never touches a grant of the present one.
///
/// Invariant: before the deadline no other instance takes this one for dead, since they count its
/// time from a later moment.
#[derive(Debug)]
pub struct InstanceLease {
    id: AtomicI64,
    deadline: AtomicU64,
    renewed_at: AtomicU64,
}

impl InstanceLease {
    /// One that never runs out, for the only instance of its store.
    #[must_use]
    pub const fn unlimited(id: InstanceId) -> InstanceLease {
        InstanceLease::new(id, u64::MAX)
    }

    /// One that has not begun: the store does not know the run yet.
    #[must_use]
    pub const fn pending() -> InstanceLease {
        // Zero is no instance's name.
        InstanceLease::new(InstanceId(0), 0)
    }

    const fn new(id: InstanceId, deadline: u64) -> InstanceLease {
        InstanceLease {
            id: AtomicI64::new(id.0),
            deadline: AtomicU64::new(deadline),
            renewed_at: AtomicU64::new(0),
        }
    }

    /// Begins a pending one.
    pub fn begin(&self, id: InstanceId, asked_at: Boottime, ttl: Duration) {
        // The name first: whoever finds the lease live goes on to use it.
        self.id.store(id.0, Ordering::Relaxed);
        self.prolong(asked_at, ttl);
    }

    /// Whose lease it is. Means something only once it was live.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        InstanceId(self.id.load(Ordering::Relaxed))
    }

    /// Puts the deadline off, to `ttl` after the renewal was asked for. Only whoever renews calls this and
    /// [`InstanceLease::end`].
    pub fn prolong(&self, asked_at: Boottime, ttl: Duration) {
        self.renewed_at.store(asked_at.as_nanos(), Ordering::Relaxed);
        self.deadline.store((asked_at + ttl).as_nanos(), Ordering::Release);
    }

    /// Ends it for good.
    pub fn end(&self) {
        self.deadline.store(0, Ordering::Release);
    }

    /// Whether this run may admit and send.
    #[must_use]
    pub fn is_live(&self, now: Boottime) -> bool {
        now.as_nanos() < self.deadline.load(Ordering::Acquire)
    }

    /// Whether it can run out at all.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.deadline.load(Ordering::Relaxed) != u64::MAX
    }

    /// The time to the deadline.
    #[must_use]
    pub fn remaining(&self, now: Boottime) -> Duration {
        let deadline = self.deadline.load(Ordering::Acquire);
        Duration::from_nanos(deadline.saturating_sub(now.as_nanos()))
    }

    /// The time since the last renewal was asked for.
    #[must_use]
    pub fn age(&self, now: Boottime) -> Duration {
        let renewed_at = self.renewed_at.load(Ordering::Relaxed);
        Duration::from_nanos(now.as_nanos().saturating_sub(renewed_at))
    }
}

/// A grant of this instance that has to go: a newer token waits elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Stop admitting what was revoked of `instance`, and give the grant back when its writes are over. May
    /// be said more than once of a grant; the shortest drain counts.
    fn revoked(&self, instance: InstanceId, revocations: Vec<Revocation>);

    /// Another instance gave a grant on this resource back; `None`: on some resource.
    fn given_back(&self, resource: Option<&Resource>);

    /// All that is in memory.
    fn remembered(&self) -> Vec<Remembered>;

    /// The lease is over: cut what is in flight and forget everything. Answers the grants whose
    /// writes may still take effect. `lease` is that of the run that follows, and has not begun.
    fn start_over(&self, lease: std::sync::Arc<InstanceLease>) -> Vec<(Resource, Rank)>;
}
