//! Other instances of the gateway: making way for their newer tokens, waiting until they have made way for
//! ours, and starting over when this instance's own lease is over.
//!
//! Invariant: a grant is given back only when no write under it is under way any more; nothing is admitted
//! on the strength of what a notification says, only of what the store answers.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::{Fences, Shared, Slot};
use crate::clock::Boottime;
use crate::fence::{Mark, OverGrant, Rank, Resource, Step};
use crate::store::{InstanceId, InstanceLease, Member, Remembered, Revocation};

/// Notifications can get lost: then this is how late it is noticed that others have made way.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Member for Fences {
    fn revoked(&self, instance: InstanceId, revocations: Vec<Revocation>) {
        for revocation in revocations {
            let slot = self.slots.get(&revocation.resource).map(|slot| Arc::clone(&slot));
            // Asked after the slot was looked for: if it is gone because this run is over, this says so.
            // What is left of that run is not given back here.
            let present =
                slot.as_ref().map_or_else(|| self.lease(), |slot| Arc::clone(&slot.lease));
            if present.instance() != instance {
                continue;
            }
            let Revocation { resource, grant, mark, drain: limit } = revocation;
            let name = (instance, resource, grant.rank);
            if let Some(mut drain) = self.shared.making_way.get_mut(&name) {
                *drain = shortest(*drain, limit);
                drop(drain);
                slot.iter().for_each(|slot| slot.changed.notify_waiters());
                continue;
            }
            self.shared.metrics.revoked.inc();
            self.shared.making_way.insert(name.clone(), limit);
            let shared = Arc::clone(&self.shared);
            self.shared.tasks.spawn(async move {
                make_way(&shared, slot, &name, grant, mark).await;
                shared.making_way.remove(&name);
            });
        }
    }

    fn given_back(&self, resource: Option<&Resource>) {
        match resource {
            Some(resource) => {
                if let Some(slot) = self.slots.get(resource) {
                    slot.tell_given_back();
                }
            }
            None => self.slots.iter().for_each(|slot| slot.tell_given_back()),
        }
    }

    fn remembered(&self) -> Vec<Remembered> {
        let remembered = self.slots.iter().filter_map(|slot| {
            let cell = slot.cell();
            let (mark, grants) = (cell.mark()?, cell.grants().collect());
            Some(Remembered { resource: slot.resource.clone(), mark, grants })
        });
        remembered.collect()
    }

    fn start_over(&self, lease: Arc<InstanceLease>) -> Vec<(Resource, Rank)> {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = lease;
        let now = self.shared.clock.now();
        let mut unsettled = Vec::new();
        self.slots.retain(|resource, slot| {
            let mut cell = slot.cell();
            unsettled.extend(cell.unsettled(now).map(|rank| (resource.clone(), rank)));
            // Whoever has this slot in hand finds it closed, and gets the next one.
            cell.end();
            drop(cell);
            slot.changed.notify_waiters();
            false
        });
        self.shared.cut();
        unsettled
    }
}

fn shortest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}

/// Lets the writes of a revoked grant end, cutting them when their time is up, then gives it back.
async fn make_way(
    shared: &Shared,
    slot: Option<Arc<Slot>>,
    name: &(InstanceId, Resource, Rank),
    grant: OverGrant,
    mark: Mark,
) {
    let (instance, resource, _) = name.clone();
    // Without a cell nothing is under way: a slot is given up only when its grants are.
    if let Some(slot) = slot {
        let is_news = {
            let mut cell = slot.cell();
            let is_news = Some(mark) > cell.mark();
            if is_news {
                // Whether others have grants below it is asked when this instance wants one itself.
                cell.raised(mark, true, shared.clock.now());
            }
            is_news
        };
        if is_news {
            slot.changed.notify_waiters();
            tracing::info!(%resource, mark = %mark.rank.token, revoked = %grant.rank.token, "grant revoked");
        }
        loop {
            let mut changed = pin!(slot.changed.notified());
            // Enabled before the cell is asked, else a change between the two would be missed.
            changed.as_mut().enable();
            let drain = shared.making_way.get(name).and_then(|drain| *drain);
            let Some(again_at) = still_under_way(shared, &slot, drain) else { break };
            // At the end of a shutdown all grants are given back together but those in doubt.
            if shared.is_closed() {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = until(shared, again_at) => {}
            }
        }
    }
    // What is not confirmed is said again with the next renewal of this instance's lease.
    let _ = shared.store.give_back(instance, vec![(resource, grant)]).await;
}

/// `None`: all is over. Else when to look again, at the latest.
fn still_under_way(
    shared: &Shared,
    slot: &Slot,
    drain: Option<Duration>,
) -> Option<Option<Boottime>> {
    let now = shared.clock.now();
    let mut cell = slot.cell();
    match cell.make_way(drain, now) {
        Some(Step::Drain { again_at, cut }) => {
            if cut {
                shared.cut();
            }
            Some(again_at)
        }
        _ => {
            slot.give_back(cell.take_over(now));
            // Somebody else goes on here: it is of no use.
            slot.give_back(cell.take_spare(now));
            None
        }
    }
}

async fn until(shared: &Shared, moment: Option<Boottime>) {
    match moment {
        Some(moment) => shared.clock.sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Asks the store until no other instance has a grant below `rank`, or it does not matter any more. The store
/// said that one has when `times` grants had been given back: until another one is, it is not asked again.
///
/// `home` outlives whoever raised: others wait for the same.
pub(super) fn await_others(slot: &Arc<Slot>, rank: Rank, times: u32, home: &Handle) {
    let slot = Arc::clone(slot);
    let tasks = slot.shared.tasks.clone();
    let others_are_gone = async move {
        let mut is_due = false;
        loop {
            let mut given_back = pin!(slot.given_back.notified());
            given_back.as_mut().enable();
            let is_live = slot.lease.is_live(slot.shared.clock.now());
            if !is_live || !slot.cell().minds_elsewhere(rank) || slot.shared.is_closed() {
                return;
            }
            if is_due || slot.times_given_back.load(Ordering::Acquire) != times {
                let (instance, resource) = (slot.lease.instance(), slot.resource.clone());
                let asked = slot.shared.store.is_granted_elsewhere(instance, resource, rank);
                if let Ok(false) = asked.await {
                    slot.cell().nobody_elsewhere(rank);
                    slot.changed.notify_waiters();
                    return;
                }
            }
            is_due = true;
            let _ = timeout(LOOK_EVERY, given_back).await;
        }
    };
    tasks.spawn_on(others_are_gone, home);
}
