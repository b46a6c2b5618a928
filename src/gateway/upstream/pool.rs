//! The places of one upstream, and its unused connections.
//!
//! All under one lock, which no other thread wants. Whoever finds no place waits in turn: a place that comes free
//! while somebody waits is not for who comes later.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Line;
use crate::clock::Boottime;

/// See the module.
pub(super) struct Pool {
    limit: usize,
    most_waiting: usize,
    state: Mutex<State>,
    /// A place has come free.
    free: Notify,
}

#[derive(Default)]
struct State {
    /// The least recently used one first.
    unused: VecDeque<(Boottime, Line)>,
    taken: usize,
    waiting: usize,
    is_retired: bool,
}

/// With a place that is taken.
pub(super) enum Taken {
    Line(Line),
    /// No connection is unused.
    Place,
}

impl Pool {
    pub(super) fn new(limit: usize, most_waiting: usize) -> Pool {
        Pool { limit, most_waiting, state: Mutex::default(), free: Notify::new() }
    }

    /// `None`: all places are taken, or others wait for one. Connections that were used last before `oldest` are closed.
    pub(super) fn take(&self, oldest: Boottime) -> Option<Taken> {
        let mut state = self.state();
        if state.taken >= self.limit || state.waiting > 0 {
            return None;
        }
        Some(state.take(oldest))
    }

    /// Waits for a place. `None`: too many do already.
    pub(super) async fn wait(&self, oldest: impl Fn() -> Boottime) -> Option<Taken> {
        let _waiting = Waiting::enter(self)?;
        loop {
            let free = self.free.notified();
            tokio::pin!(free);
            // Before the look, else a place that comes free between the two would be missed.
            free.as_mut().enable();
            {
                let mut state = self.state();
                if state.taken < self.limit {
                    return Some(state.take(oldest()));
                }
            }
            free.await;
        }
    }

    /// Frees a place, and takes its connection if that can be used again.
    pub(super) fn give_back(&self, line: Option<(Boottime, Line)>) {
        let mut state = self.state();
        state.taken -= 1;
        if !state.is_retired {
            state.unused.extend(line);
        }
        if state.waiting > 0 {
            drop(state);
            self.free.notify_one();
        }
    }

    pub(super) fn retire(&self) {
        let mut state = self.state();
        state.is_retired = true;
        state.unused.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, oldest: Boottime) -> Taken {
        self.taken += 1;
        while self.unused.front().is_some_and(|(since, _)| *since < oldest) {
            self.unused.pop_front();
        }
        while let Some((_, line)) = self.unused.pop_back() {
            if line.sender.is_ready() {
                return Taken::Line(line);
            }
        }
        Taken::Place
    }
}

/// Counts who waits.
struct Waiting<'p>(&'p Pool);

impl Waiting<'_> {
    fn enter(pool: &Pool) -> Option<Waiting<'_>> {
        let mut state = pool.state();
        if state.waiting >= pool.most_waiting {
            return None;
        }
        state.waiting += 1;
        Some(Waiting(pool))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Poll;
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;

    async fn is_waiting(wait: &mut (impl Future<Output = Option<Taken>> + Unpin)) -> bool {
        std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *wait).poll(cx).is_pending())).await
    }

    fn is_place(taken: Option<Taken>) -> bool {
        matches!(taken, Some(Taken::Place))
    }

    #[tokio::test]
    async fn who_waits_gets_the_place_that_comes_free_and_nobody_overtakes() {
        let (pool, now) = (Pool::new(1, 2), Clock::new().now());
        assert!(is_place(pool.take(now)) && pool.take(now).is_none());
        let mut first = std::pin::pin!(pool.wait(|| now));
        let mut second = std::pin::pin!(pool.wait(|| now));
        assert!(is_waiting(&mut first).await);
        assert!(is_waiting(&mut second).await);
        assert!(pool.wait(|| now).await.is_none(), "a third one is too many");
        pool.give_back(None);
        assert!(pool.take(now).is_none(), "others came first");
        assert!(is_place(first.await));
        assert!(is_waiting(&mut second).await);
        pool.give_back(None);
        assert!(is_place(second.await));
        pool.give_back(None);
        assert!(is_place(pool.take(now)));
    }

    #[tokio::test]
    async fn who_stops_waiting_leaves_the_place_to_the_next() {
        let (pool, now) = (Pool::new(1, 2), Clock::new().now());
        assert!(is_place(pool.take(now)));
        let mut first = Box::pin(pool.wait(|| now));
        let mut second = std::pin::pin!(pool.wait(|| now));
        assert!(is_waiting(&mut first).await);
        assert!(is_waiting(&mut second).await);
        pool.give_back(None);
        drop(first);
        let second = tokio::time::timeout(Duration::from_secs(10), second).await;
        assert!(is_place(second.expect("it was told")));
    }
}
