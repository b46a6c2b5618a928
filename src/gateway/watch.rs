//! What a client connection's two halves, the bytes and the requests, tell each other.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

/// How long a connection may rest between two requests: as long as nginx and most clients allow.
const REST: Duration = Duration::from_secs(75);

/// How long a client is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a whole head.
    pub(super) head: Duration,
    /// While it takes nothing of an answer.
    pub(super) answer: Duration,
}

/// All of one connection is on one thread, so no order between the fields has to be kept.
#[derive(Debug)]
pub(super) struct Watch {
    /// The runtime of the connection's thread.
    pub(super) runtime: Handle,
    /// A request is in work, or its answer is not written yet.
    serving: AtomicBool,
    /// The answer was handed over to the last byte, but may not be flushed.
    answered: AtomicBool,
    /// Bodies that are being read: one may be after its answer, and has a clock of its own.
    uploads: AtomicU32,
    /// Bytes of a next head have arrived.
    head_begun: AtomicBool,
    has_served: AtomicBool,
    /// The client does not take what is written.
    stuck: AtomicBool,
    /// Looks at the clock since what is waited for began.
    looks: AtomicU32,
}

impl Watch {
    pub(super) fn new(runtime: Handle) -> Watch {
        Watch {
            runtime,
            serving: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            uploads: AtomicU32::new(0),
            head_begun: AtomicBool::new(false),
            has_served: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            looks: AtomicU32::new(0),
        }
    }

    pub(super) fn serving(&self) {
        self.answered.store(false, Ordering::Relaxed);
        self.head_begun.store(false, Ordering::Relaxed);
        self.serving.store(true, Ordering::Relaxed);
        self.has_served.store(true, Ordering::Relaxed);
        self.looks.store(0, Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    pub(super) fn upload_began(&self) {
        // Not one step, which would cost more: one thread does it all.
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

    pub(super) fn has_served(&self) -> bool {
        self.has_served.load(Ordering::Relaxed)
    }

    /// Called at every look at the clock: whether the client has used up its time.
    pub(super) fn is_overdue(&self, look: Duration, limits: &Patience) -> bool {
        let limit = if self.stuck.load(Ordering::Relaxed) {
            limits.answer
        } else if !self.is_between_requests() {
            return false;
        } else if self.has_head_begun() {
            limits.head
        } else {
            REST
        };
        look * self.looks.fetch_add(1, Ordering::Relaxed) >= limit
    }
}
