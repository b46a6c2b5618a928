//! Time limits that cost nothing per request.
//!
//! A timer per request would be set and taken back each time, for a limit that is hardly ever
//! reached. Instead each connection has a [`Watch`] that knows what it is at and
//! until when, and one watchman per thread looks at all of them a few times a second. Whoever is
//! late is called and finds out by itself: the watchman never decides what a missed limit means.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::watch::{Patience, Watch};
use crate::clock::Clock;
use crate::fences::{Fences, Permit};

/// How long a new connection may take to bring its first request once the gateway is closing.
const LAST_CHANCE: Duration = Duration::from_millis(100);

/// Why work on a request was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It took longer than the limit that was set.
    Late,
    /// A newer token's write has waited long enough.
    Cut,
}

/// Does `work` within the limit that is set on `watch`. The work comes pinned, since to move it costs
/// more than to watch over it.
pub(super) async fn within<T>(
    watch: &Watch,
    clock: Clock,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Result<T, Stop> {
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        stop(watch, clock, None).map_or(Poll::Pending, |stop| Poll::Ready(Err(stop)))
    })
    .await
}

/// Whether work that is not done has to be given up: past the limit that is set on `watch`, or for
/// the sake of a newer write than the one that has `permit`.
pub(super) fn stop(watch: &Watch, clock: Clock, permit: Option<&Permit>) -> Option<Stop> {
    if !watch.is_called() {
        return None;
    }
    if watch.is_late(clock.now()) {
        return Some(Stop::Late);
    }
    permit.is_some_and(Permit::is_cut).then_some(Stop::Cut)
}

/// The connections of one thread.
pub(super) struct Vigils {
    rounds: Mutex<Rounds>,
    pub(super) closing: CancellationToken,
    pub(super) abort: CancellationToken,
    is_last_chance_over: AtomicBool,
    next: AtomicU64,
    all: Mutex<HashMap<u64, Arc<Watch>>>,
}

/// How often connections are looked at, and how long their clients are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    pub(super) period: Duration,
    pub(super) patience: Patience,
}

/// A connection's place among the vigils.
pub(super) struct Enrolled<'a> {
    vigils: &'a Vigils,
    number: u64,
}

impl Vigils {
    pub(super) fn new(
        rounds: Rounds,
        closing: CancellationToken,
        abort: CancellationToken,
    ) -> Vigils {
        Vigils {
            rounds: Mutex::new(rounds),
            closing,
            abort,
            is_last_chance_over: AtomicBool::new(false),
            next: AtomicU64::new(0),
            all: Mutex::default(),
        }
    }

    /// Watches in other rounds from now on.
    pub(super) fn change(&self, rounds: Rounds) {
        *self.rounds.lock().unwrap_or_else(PoisonError::into_inner) = rounds;
        self.all().values().for_each(|watch| watch.wait_anew());
    }

    fn rounds(&self) -> Rounds {
        *self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches over a connection until the place is dropped.
    pub(super) fn enrol(&self, watch: &Arc<Watch>) -> Enrolled<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.all().insert(number, Arc::clone(watch));
        if self.closing.is_cancelled() {
            watch.call();
        }
        Enrolled { vigils: self, number }
    }

    /// Whether a connection is to end after the request in work, if there is one.
    pub(super) fn closes(&self, watch: &Watch) -> bool {
        self.closing.is_cancelled()
            && (watch.requests() > 0 || self.is_last_chance_over.load(Ordering::Relaxed))
    }

    /// Whether the client of a connection that was called has used up its time.
    pub(super) fn is_overdue(&self, watch: &Watch) -> bool {
        let Rounds { period, patience } = self.rounds();
        watch.has_waited(period, &patience)
    }

    /// The watchman's round, for ever.
    pub(super) async fn watch(&self, clock: Clock, fences: &Fences) {
        let mut cuts_seen = fences.cuts();
        loop {
            let Rounds { period, patience } = self.rounds();
            sleep(period).await;
            let cuts = fences.cuts();
            if std::mem::replace(&mut cuts_seen, cuts) != cuts {
                self.call_all();
            }
            let now = clock.now();
            for watch in self.all().values() {
                watch.grow_old(now, &patience);
                if watch.is_overdue(period, &patience) || watch.is_late(now) {
                    watch.call();
                }
            }
        }
    }

    /// Calls everybody when the gateway closes and when it aborts.
    pub(super) async fn heed_the_end(&self) {
        self.closing.cancelled().await;
        self.call_all();
        sleep(LAST_CHANCE).await;
        self.is_last_chance_over.store(true, Ordering::Relaxed);
        self.call_all();
        self.abort.cancelled().await;
        self.call_all();
        std::future::pending().await
    }

    fn call_all(&self) {
        self.all().values().for_each(|watch| watch.call());
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Watch>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Enrolled<'_> {
    fn drop(&mut self) {
        self.vigils.all().remove(&self.number);
    }
}
