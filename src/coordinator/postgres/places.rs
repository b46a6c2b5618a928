//! Who waits here for which lease.
//!
//! Owned here: how those of this process who wait are woken, and the limit on them. The queue
//! itself is in the database, where those of other gateways stand in it as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::coordinator::CoordinatorError;
use crate::fence::Resource;

/// Acquisitions under way, of all resources together.
const MAX_ACQUISITIONS: usize = 10_000;

type Waiting = BTreeMap<(Resource, i64), Arc<Notify>>;

/// All places of this process. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Places {
    waiting: Arc<Mutex<Waiting>>,
    room: Arc<Semaphore>,
    waiters: IntGauge,
}

/// One place, as long as it is kept.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    key: (Resource, i64),
    turn: Arc<Notify>,
}

impl Places {
    pub(super) fn new(waiters: IntGauge) -> Places {
        Places {
            waiting: Arc::default(),
            room: Arc::new(Semaphore::new(MAX_ACQUISITIONS)),
            waiters,
        }
    }

    /// Room for one more acquisition.
    pub(super) fn room(&self) -> Result<OwnedSemaphorePermit, CoordinatorError> {
        Arc::clone(&self.room).try_acquire_owned().map_err(|_| {
            CoordinatorError::Unavailable(format!(
                "{MAX_ACQUISITIONS} acquisitions are under way already; try again later"
            ))
        })
    }

    /// Keeps a place that the database gave.
    pub(super) fn keep(&self, resource: &Resource, id: i64) -> Place {
        let (key, turn) = ((resource.clone(), id), Arc::new(Notify::new()));
        self.lock().insert(key.clone(), Arc::clone(&turn));
        self.waiters.inc();
        Place { places: self.clone(), key, turn }
    }

    /// All places.
    pub(super) fn all(&self) -> Vec<(Resource, i64)> {
        self.lock().keys().cloned().collect()
    }

    /// Tells a place that there is a reason to try.
    pub(super) fn tell(&self, key: &(Resource, i64)) {
        if let Some(turn) = self.lock().get(key) {
            turn.notify_one();
        }
    }

    /// Tells who came first of those here that the lease may have come free.
    pub(super) fn tell_first(&self, resource: &Resource) {
        let waiting = self.lock();
        let first = waiting.range((resource.clone(), 0)..).next();
        if let Some(((of, _), turn)) = first
            && of == resource
        {
            turn.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// What the database knows it by.
    pub(super) const fn id(&self) -> i64 {
        self.key.1
    }

    /// Waits for a reason to try, even if it came to be before the call.
    pub(super) async fn told(&self) {
        self.turn.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().remove(&self.key);
        self.places.waiters.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn news_of_a_resource_goes_to_who_came_first() {
        let waiters = IntGauge::new("waiters", "waiters").unwrap();
        let places = Places::new(waiters.clone());
        let [a, b] = ["a", "b"].map(|name| Resource::new(name).unwrap());
        let (late, early) = (places.keep(&a, 9), places.keep(&a, 7));
        let other = places.keep(&b, 1);
        assert_eq!(waiters.get(), 3);
        places.tell_first(&a);
        early.told().await;
        drop(early);
        places.tell_first(&a);
        late.told().await;
        places.tell(&(b, other.id()));
        other.told().await;
        drop((late, other));
        assert_eq!((waiters.get(), places.all().len()), (0, 0));
    }

    #[test]
    fn acquisitions_are_limited_and_make_room_again() {
        let places = Places::new(IntGauge::new("waiters", "waiters").unwrap());
        let mut all: Vec<_> = (0..MAX_ACQUISITIONS).map(|_| places.room().unwrap()).collect();
        assert!(places.room().is_err());
        all.pop();
        assert!(places.room().is_ok());
    }
}
