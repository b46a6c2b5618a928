//! What a client connection's two halves, the bytes and the requests, tell each other.
//!
//! On HTTP/2 each stream has a watch of its own, as a connection of HTTP/1.1 has, and the connection has one in which
//! it is serving while any stream is open.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::client::Client;
use super::interim::Interim;
use super::load;
use crate::clock::Boottime;
use crate::config::Limits;

const NO_LIMIT: u64 = u64::MAX;

/// How long a client is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a whole head.
    pub(super) head: Duration,
    /// While it takes nothing of an answer.
    pub(super) answer: Duration,
    /// Between two requests.
    pub(super) rest: Duration,
    /// From the begin of its connection until the last request on it.
    pub(super) age: Duration,
}

impl Patience {
    pub(super) const fn new(limits: &Limits) -> Patience {
        Patience {
            head: limits.head_timeout,
            answer: limits.body_timeout,
            rest: limits.idle_timeout,
            age: limits.keep_alive_age,
        }
    }
}

/// Whose connection it is, and for how long.
pub(super) struct Tenancy {
    pub(super) client: Arc<load::Client>,
    pub(super) since: Boottime,
    /// Requests that it may bring.
    pub(super) requests: u32,
}

/// All of one connection is on one thread, so no order between the fields has to be kept.
pub(super) struct Watch {
    pub(super) client: Arc<Client>,
    pub(super) tenancy: Arc<Tenancy>,
    /// The runtime of the connection's thread.
    pub(super) runtime: Handle,
    /// Work of that thread that has to end before the thread does.
    pub(super) tasks: TaskTracker,
    pub(super) interim: Interim,
    /// A request is in work, or its answer is not written yet.
    serving: AtomicBool,
    /// The answer was handed over to the last byte, but may not be flushed.
    answered: AtomicBool,
    /// Bodies that are being read: one may be after its answer, and has a clock of its own.
    uploads: AtomicU32,
    /// Bytes of a next head have arrived.
    head_begun: AtomicBool,
    /// Requests that were begun. It wraps.
    requests: AtomicU32,
    /// The next answer is the last.
    spent: AtomicBool,
    /// The client does not take what is written.
    stuck: AtomicBool,
    /// The watchman's rounds since what the client is waited for began.
    looks: AtomicU32,
    /// Until when the present step of a request may take, in nanoseconds of boot time.
    limit: AtomicU64,
    /// The watchman saw that there may be something to see.
    called: AtomicBool,
    /// The connection's task.
    waker: Mutex<Option<Waker>>,
}

impl Watch {
    pub(super) fn new(
        client: Arc<Client>,
        tenancy: Arc<Tenancy>,
        runtime: Handle,
        tasks: TaskTracker,
    ) -> Watch {
        Watch {
            client,
            tenancy,
            runtime,
            tasks,
            interim: Interim::default(),
            serving: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            uploads: AtomicU32::new(0),
            head_begun: AtomicBool::new(false),
            requests: AtomicU32::new(0),
            spent: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            looks: AtomicU32::new(0),
            limit: AtomicU64::new(NO_LIMIT),
            called: AtomicBool::new(false),
            waker: Mutex::new(None),
        }
    }

    /// Says whom to call. A connection is worked on by one task for its whole life.
    pub(super) fn register(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }

    /// Calls whoever works on the connection to look at the time and at its permit.
    pub(super) fn call(&self) {
        self.called.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Calls whoever works on the connection, to write what there is.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }

    pub(super) fn is_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }

    /// Sets the limit of the next step of the request in work.
    pub(super) fn until(&self, limit: Boottime) {
        self.limit.store(limit.as_nanos(), Ordering::Relaxed);
        self.called.store(false, Ordering::Relaxed);
    }

    /// Lets the next step take any time.
    pub(super) fn without_limit(&self) {
        self.limit.store(NO_LIMIT, Ordering::Relaxed);
    }

    pub(super) fn is_late(&self, now: Boottime) -> bool {
        now.as_nanos() >= self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn serving(&self) {
        self.answered.store(false, Ordering::Relaxed);
        self.head_begun.store(false, Ordering::Relaxed);
        self.serving.store(true, Ordering::Relaxed);
        self.interim.open();
        let requests = self.requests().wrapping_add(1);
        self.requests.store(requests, Ordering::Relaxed);
        if requests == self.tenancy.requests {
            self.spent.store(true, Ordering::Relaxed);
        }
        self.looks.store(0, Ordering::Relaxed);
    }

    /// Nothing is in work any more; how long the client may leave it so counts from now.
    pub(super) fn rests(&self) {
        self.serving.store(false, Ordering::Relaxed);
        self.looks.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    pub(super) fn answered(&self) {
        self.without_limit();
        self.answered.store(true, Ordering::Relaxed);
    }

    pub(super) fn upload_began(&self) {
        // Not in one step, which would cost more: one thread does it all.
        self.uploads.store(self.uploads.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn upload_ended(&self) {
        self.uploads.store(self.uploads.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        self.looks.store(0, Ordering::Relaxed);
    }

    /// Told of every write to the client: whether it took something.
    pub(super) fn wrote(&self, has_taken: bool) {
        if self.stuck.load(Ordering::Relaxed) == has_taken {
            self.stuck.store(!has_taken, Ordering::Relaxed);
            self.looks.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn flushed(&self) {
        if self.answered.load(Ordering::Relaxed) {
            self.serving.store(false, Ordering::Relaxed);
        }
    }

    /// Whether what is written now belongs to a request's answer.
    pub(super) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Relaxed)
    }

    /// Whether what is read now can only belong to a next head.
    pub(super) fn is_between_requests(&self) -> bool {
        !self.is_serving() && self.uploads.load(Ordering::Relaxed) == 0
    }

    pub(super) fn received(&self) {
        if self.is_between_requests() && !self.head_begun.swap(true, Ordering::Relaxed) {
            self.looks.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn has_head_begun(&self) -> bool {
        self.head_begun.load(Ordering::Relaxed)
    }

    /// How many requests were begun.
    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Whether the connection has to end after the answer to the request in work.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// At each of the watchman's rounds: lets the connection grow old.
    pub(super) fn grow_old(&self, now: Boottime, patience: &Patience) {
        if now.since(self.tenancy.since) > patience.age {
            self.spent.store(true, Ordering::Relaxed);
        }
    }

    /// Begins to wait anew: what a round means has changed.
    pub(super) fn wait_anew(&self) {
        self.looks.store(0, Ordering::Relaxed);
    }

    /// At each of the watchman's rounds: whether the client has used up its time.
    pub(super) fn is_overdue(&self, period: Duration, patience: &Patience) -> bool {
        if self.stuck.load(Ordering::Relaxed) || self.is_between_requests() {
            self.looks.fetch_add(1, Ordering::Relaxed);
        }
        self.has_waited(period, patience)
    }

    /// The same, without counting as a round.
    pub(super) fn has_waited(&self, period: Duration, patience: &Patience) -> bool {
        let limit = if self.stuck.load(Ordering::Relaxed) {
            patience.answer
        } else if !self.is_between_requests() {
            return false;
        } else if self.has_head_begun() {
            patience.head
        } else {
            patience.rest
        };
        period * self.looks.load(Ordering::Relaxed) > limit
    }
}
