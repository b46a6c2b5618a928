//! What keeps memory and the grant table small, and what a clean shutdown leaves behind.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::{Fences, LeftView, Over, Slot, answer_within};
use crate::clock::Boottime;
use crate::fence::{Cell, OverGrant, Resource};
use crate::metrics::Counted;
use crate::store::{FenceStore, InstanceId, StoreError};

pub(super) const QUEUE_GRANTS: usize = 4096;
const BATCH_GRANTS: usize = 1024;
/// Grants that are over are of no hurry: collecting them spares a commit per handover.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether so many are there that their queue would be full before that.
const CROWD_EVERY: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Grants of earlier runs that get a line each at the start; of the others there is a count.
const LEFT_LINES: u32 = 100;

/// What bounds memory.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Writes that wait on one resource.
    pub waiters: u32,
    /// Resources in memory.
    pub cells: usize,
    /// How long a resource stays in memory without a write.
    pub idle: Duration,
}

pub(super) fn spawn(fences: &Arc<Fences>, over: mpsc::Receiver<Over>, tasks: &TaskTracker) {
    tasks.spawn(give_back(Arc::downgrade(fences), over));
    tasks.spawn(look_after(Arc::downgrade(fences), tasks.clone()));
    tasks.spawn(forget_left(Arc::downgrade(fences)));
}

async fn give_back(fences: Weak<Fences>, mut over: mpsc::Receiver<Over>) {
    let mut batch = Vec::new();
    while over.recv_many(&mut batch, BATCH_GRANTS).await > 0 {
        let Some(fences) = fences.upgrade() else { return };
        // A failure was logged by the store. The rows stay until the clean shutdown.
        let _ = give_back_by_run(&*fences.shared.store, batch.drain(..)).await;
        drop(fences);
        collect(&over).await;
    }
}

/// Waits until enough are there for a call, or for as long as they may wait.
async fn collect(over: &mpsc::Receiver<Over>) {
    let until = Instant::now() + GIVE_BACK_EVERY;
    while over.len() < BATCH_GRANTS && Instant::now() < until {
        tokio::time::sleep(CROWD_EVERY).await;
    }
}

/// One walk over all resources, which counts them and finds the idle ones, and grants that no raise took along: a
/// scrape walks over none.
async fn look_after(fences: Weak<Fences>, tasks: TaskTracker) {
    let mut evicting: Option<JoinHandle<()>> = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(fences) = fences.upgrade() else { return };
        // A store that is away holds up the eviction, and not the count.
        if evicting.as_ref().is_some_and(|evicting| !evicting.is_finished()) {
            fences.count();
            continue;
        }
        let Idle { closing, spares } = fences.close_idle();
        if !closing.is_empty() || !spares.is_empty() {
            evicting = Some(tasks.spawn(async move {
                give_back_spares(&*fences.shared.store, spares).await;
                fences.evict(closing).await;
            }));
        }
    }
}

/// Deletes what earlier runs left, once it has settled. No more of it can appear: this instance has
/// the store to itself.
async fn forget_left(fences: Weak<Fences>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(fences) = fences.upgrade() else { return };
        let alone_for = fences.shared.clock.now().since(fences.dead_since);
        if let Ok(false) = fences.shared.store.forget_left(alone_for).await {
            return;
        }
    }
}

/// What a walk over all resources finds to give up.
#[derive(Default)]
pub(super) struct Idle {
    pub(super) closing: Vec<Closing>,
    /// Grants that are over and that no raise took along in time.
    pub(super) spares: Vec<Over>,
}

/// A place in memory that is being given up, and the grants that go with it.
pub(super) struct Closing {
    pub(super) slot: Arc<Slot>,
    pub(super) grants: Vec<OverGrant>,
}

impl Counted {
    fn add(&mut self, cell: &Cell, now: Boottime) {
        self.cells += 1;
        self.in_flight += i64::from(cell.in_flight());
        self.grants += cell.grants().count().cast_signed() as i64;
        let drain_age = cell.draining_since(now).map(|since| now.since(since));
        self.drain_age = self.drain_age.max(drain_age.unwrap_or_default());
    }
}

impl Closing {
    fn grants(&self) -> impl Iterator<Item = Over> {
        let Closing { slot, grants } = self;
        grants.iter().map(|grant| (slot.lease.instance(), slot.resource.clone(), *grant))
    }
}

/// In the name of each run that had them: what one left behind is not another's to give back.
async fn give_back_by_run(
    store: &dyn FenceStore,
    over: impl Iterator<Item = Over>,
) -> Result<(), StoreError> {
    let mut by_run: BTreeMap<InstanceId, Vec<(Resource, OverGrant)>> = BTreeMap::new();
    for (instance, resource, grant) in over {
        by_run.entry(instance).or_default().push((resource, grant));
    }
    for (instance, grants) in by_run {
        store.give_back(instance, grants).await?;
    }
    Ok(())
}

/// What cannot be given back stays until the clean shutdown.
async fn give_back_spares(store: &dyn FenceStore, spares: Vec<Over>) {
    for batch in spares.chunks(BATCH_GRANTS) {
        let _ = give_back_by_run(store, batch.iter().cloned()).await;
    }
}

impl Fences {
    /// Puts on record, at the start, which grants an earlier run did not give back: writes under
    /// them may be in doubt, and nobody else will ever say so.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn log_left(&self) -> Result<(), StoreError> {
        let left = self.left(LEFT_LINES).await?;
        for LeftView { resource, token, settles_at } in &left {
            tracing::warn!(%resource, %token, %settles_at, "grant left by an earlier run");
        }
        let all = answer_within(self.shared.store.count_left()).await?;
        let more = all.saturating_sub(left.len() as u64);
        if more > 0 {
            tracing::warn!(more, all, "more grants were left by earlier runs");
        }
        Ok(())
    }

    /// Gives the grants of idle resources back, then forgets these resources.
    async fn evict(&self, closing: Vec<Closing>) {
        for batch in closing.chunks(BATCH_GRANTS) {
            let grants = batch.iter().flat_map(Closing::grants);
            let given_back = give_back_by_run(&*self.shared.store, grants).await;
            for closing in batch {
                self.end_closing(closing, given_back.is_ok());
            }
        }
    }

    /// Counts all on the way.
    pub(super) fn close_idle(&self) -> Idle {
        let now = self.shared.clock.now();
        let oldest_kept = self.oldest_kept(now);
        let mut idle = Idle::default();
        let mut counted = Counted::default();
        for slot in &self.slots {
            // The map's own reference alone: nobody holds a permit, waits, or is about to ask. The
            // map's lock keeps it so until the cell is marked.
            let is_unused = Arc::strong_count(&slot) == 1;
            let mut cell = slot.cell();
            counted.add(&cell, now);
            if is_unused
                && cell.used_at() < oldest_kept
                && let Some(grants) = cell.close(now)
            {
                idle.closing.push(Closing { slot: Arc::clone(&slot), grants: grants.to_vec() });
            } else if let Some(spare) = cell.take_spare(now - GIVE_BACK_EVERY) {
                idle.spares.push((slot.lease.instance(), slot.resource.clone(), spare));
            }
        }
        self.shared.metrics.counted(counted);
        idle
    }

    /// Counts all that is in memory, for the gauges.
    pub(super) fn count(&self) -> Counted {
        let now = self.shared.clock.now();
        let mut counted = Counted::default();
        for slot in &self.slots {
            counted.add(&slot.cell(), now);
        }
        self.shared.metrics.counted(counted);
        counted
    }

    /// Cells last used before this moment are given up: those idle for long, and the least
    /// recently used ones above the bound.
    fn oldest_kept(&self, now: Boottime) -> Boottime {
        let bounds = self.bounds();
        let idle_since = now - bounds.idle;
        let surplus = self.slots.len().saturating_sub(bounds.cells);
        if surplus == 0 {
            return idle_since;
        }
        let mut used: Vec<Boottime> = self.slots.iter().map(|slot| slot.cell().used_at()).collect();
        let last = used.len().saturating_sub(1);
        let (_, cutoff, _) = used.select_nth_unstable(surplus.min(last));
        idle_since.max(*cutoff)
    }

    pub(super) fn end_closing(&self, closing: &Closing, given_back: bool) {
        let slot = &closing.slot;
        if given_back {
            // Under its name there may be a place of the next run by now.
            self.slots.remove_if(&slot.resource, |_, present| Arc::ptr_eq(present, slot));
        } else {
            slot.cell().reopen();
        }
        slot.changed.notify_waiters();
    }

    /// Cuts every write that is still in flight and refuses those that wait, at the end of the grace of a
    /// shutdown.
    pub fn cut_all(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        for slot in &self.slots {
            slot.cell().cut_all();
            slot.changed.notify_waiters();
        }
        self.shared.cut();
    }

    /// Gives all grants back but those whose writes may still take effect: for these the next
    /// instance has to wait. Admit nothing after this.
    ///
    /// # Errors
    /// The store did not confirm: every grant stays, which costs a wait but is safe.
    pub async fn give_back_all(&self) -> Result<usize, StoreError> {
        let now = self.shared.clock.now();
        let mut keep = Vec::new();
        for slot in &self.slots {
            keep.extend(slot.cell().unsettled(now).map(|rank| (slot.resource.clone(), rank)));
        }
        let kept = keep.len();
        let instance = self.lease().instance();
        answer_within(self.shared.store.give_back_all_but(instance, keep)).await?;
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::fence::{Rank, Token};

    #[tokio::test]
    async fn grants_that_are_over_wait_for_others_until_they_are_enough_for_a_call() {
        let (sender, over) = mpsc::channel(QUEUE_GRANTS);
        let rank = Rank::first(Token::from_i64(5).unwrap());
        let one = || {
            let resource = Resource::new("r").unwrap();
            (InstanceId::from_i64(1), resource, OverGrant { rank, number: None })
        };
        for _ in 1..BATCH_GRANTS {
            sender.try_send(one()).unwrap();
        }
        assert!(collect(&over).now_or_never().is_none());
        sender.try_send(one()).unwrap();
        assert!(collect(&over).now_or_never().is_some(), "more would be lost to a full queue");
    }
}
