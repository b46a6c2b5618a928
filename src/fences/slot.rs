//! A cell with the means to wait for it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Shared;
use crate::fence::{Cell, OverGrant, Resource};
use crate::store::InstanceLease;

/// One resource's place in memory.
pub(crate) struct Slot {
    pub(crate) resource: Resource,
    cell: Mutex<Cell>,
    /// Something happened that a waiting write may depend on.
    pub(crate) changed: Notify,
    /// Another instance gave a grant back.
    pub(crate) given_back: Notify,
    /// How often; only whether it changed matters.
    pub(crate) times_given_back: AtomicU32,
    /// Held while the store or the coordinator is asked about this resource.
    pub(crate) turn: tokio::sync::Mutex<()>,
    pub(crate) waiters: AtomicU32,
    /// The right to admit that this place came into being under. It ends with it.
    pub(crate) lease: Arc<InstanceLease>,
    pub(crate) shared: Arc<Shared>,
}

impl Slot {
    pub(crate) fn new(resource: Resource, lease: Arc<InstanceLease>, shared: Arc<Shared>) -> Slot {
        Slot {
            resource,
            cell: Mutex::new(Cell::new(shared.clock.now())),
            changed: Notify::new(),
            given_back: Notify::new(),
            times_given_back: AtomicU32::new(0),
            turn: tokio::sync::Mutex::new(()),
            waiters: AtomicU32::new(0),
            lease,
            shared,
        }
    }

    /// The cell. No method of it panics half way, so a poisoned lock guards a whole cell.
    pub(crate) fn cell(&self) -> MutexGuard<'_, Cell> {
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever waits for grants of other instances to look whether any are left.
    pub(crate) fn tell_given_back(&self) {
        self.times_given_back.fetch_add(1, Ordering::Release);
        self.given_back.notify_waiters();
    }

    /// Queues grants to be deleted. If the queue is full they stay until the clean shutdown: a
    /// grant too many only makes a higher token wait after a crash.
    pub(crate) fn give_back(&self, over: impl IntoIterator<Item = OverGrant>) {
        for grant in over {
            let over = (self.lease.instance(), self.resource.clone(), grant);
            let _ = self.shared.over.try_send(over);
        }
    }
}
