//! Who waits for which lease, in the order of arrival.
//!
//! Owned here: one queue per resource, in memory, and the limit on all of them together. Only the
//! head of a queue may take a lease that has come free, so nobody overtakes. A place is left by
//! dropping it, and then the next one is told that it is its turn. The queues do not outlive the
//! process, and need not: neither do the connections of those who wait.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;
use tokio::sync::Notify;

use crate::coordinator::CoordinatorError;
use crate::fence::Resource;

/// Acquisitions under way, of all resources together.
const MAX_PLACES: usize = 10_000;

/// The queues of all resources.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    state: Arc<Mutex<State>>,
    waiters: IntGauge,
}

#[derive(Debug, Default)]
struct State {
    by_resource: HashMap<Resource, VecDeque<Arc<Notify>>>,
    places: usize,
}

/// A place in one resource's queue.
#[derive(Debug)]
pub(super) struct Place {
    queues: Queues,
    resource: Resource,
    /// Tells this place alone; its address is what the place is known by.
    turn: Arc<Notify>,
}

impl Queues {
    pub(super) fn new(waiters: IntGauge) -> Queues {
        Queues { state: Arc::default(), waiters }
    }

    /// Takes the last place in the queue for `resource`.
    pub(super) fn join(&self, resource: &Resource) -> Result<Place, CoordinatorError> {
        let mut state = self.lock();
        if state.places == MAX_PLACES {
            return Err(CoordinatorError::Unavailable(format!(
                "{MAX_PLACES} acquisitions are waiting already; try again later"
            )));
        }
        state.places += 1;
        self.waiters.inc();
        let turn = Arc::new(Notify::new());
        state.by_resource.entry(resource.clone()).or_default().push_back(Arc::clone(&turn));
        Ok(Place { queues: self.clone(), resource: resource.clone(), turn })
    }

    /// Tells the head of the queue that the lease may have come free.
    pub(super) fn tell_head(&self, resource: &Resource) {
        if let Some(head) = self.lock().head(resource) {
            head.notify_one();
        }
    }

    /// Tells every head that its lease may have come free.
    pub(super) fn tell_all_heads(&self) {
        for queue in self.lock().by_resource.values() {
            if let Some(head) = queue.front() {
                head.notify_one();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn head(&self, resource: &Resource) -> Option<&Arc<Notify>> {
        self.by_resource.get(resource)?.front()
    }

    fn is_head(&self, resource: &Resource, turn: &Arc<Notify>) -> bool {
        self.head(resource).is_some_and(|head| Arc::ptr_eq(head, turn))
    }
}

impl Place {
    /// Whether nobody is before it. Once true, this stays true unless another one goes first.
    pub(super) fn is_head(&self) -> bool {
        self.queues.lock().is_head(&self.resource, &self.turn)
    }

    /// Goes to the front, for an owner that exchanges its lease for a newer one.
    pub(super) fn go_first(&self) {
        let mut state = self.queues.lock();
        if let Some(queue) = state.by_resource.get_mut(&self.resource)
            && let Some(at) = queue.iter().position(|turn| Arc::ptr_eq(turn, &self.turn))
            && let Some(turn) = queue.remove(at)
        {
            queue.push_front(turn);
        }
    }

    /// Waits until this place is the head and there is a reason to try, even if that came to be
    /// before the call.
    pub(super) async fn told(&self) {
        self.turn.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.queues.lock();
        let was_head = state.is_head(&self.resource, &self.turn);
        if let Some(queue) = state.by_resource.get_mut(&self.resource) {
            // Nearly always it is the first.
            if let Some(at) = queue.iter().position(|turn| Arc::ptr_eq(turn, &self.turn)) {
                queue.remove(at);
            }
            if queue.is_empty() {
                state.by_resource.remove(&self.resource);
            }
        }
        state.places -= 1;
        self.queues.waiters.dec();
        if was_head && let Some(head) = state.head(&self.resource) {
            head.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues() -> Queues {
        Queues::new(IntGauge::new("waiters", "waiters").unwrap())
    }

    #[tokio::test]
    async fn the_next_one_is_told_when_the_head_leaves() {
        let queues = queues();
        let resource = Resource::new("r").unwrap();
        let first = queues.join(&resource).unwrap();
        let second = queues.join(&resource).unwrap();
        let third = queues.join(&resource).unwrap();
        assert!(first.is_head() && !second.is_head() && !third.is_head());
        drop(second);
        assert!(!third.is_head());
        drop(first);
        third.told().await;
        assert!(third.is_head());
        drop(third);
        assert!(queues.lock().by_resource.is_empty());
        assert_eq!(queues.waiters.get(), 0);
    }

    #[test]
    fn places_are_limited_and_come_free_again() {
        let queues = queues();
        let resource = Resource::new("r").unwrap();
        let mut places: Vec<_> = (0..MAX_PLACES).map(|_| queues.join(&resource).unwrap()).collect();
        assert!(queues.join(&Resource::new("other").unwrap()).is_err());
        places.pop();
        assert!(queues.join(&resource).is_ok());
    }
}
