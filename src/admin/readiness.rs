//! Whether a load balancer should send new requests here.
//!
//! It does not flap: what makes a gateway unready does so at once, but it is ready again only when that is over for
//! a while. Overload is no reason: a gateway that is taken out for it leaves its load to the others, which follow
//! it; what is too much is refused request by request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Boottime, Clock};

/// How long the right to admit has to last before new requests are welcome again.
const STEADY: Duration = Duration::from_secs(3);

/// See the module.
#[derive(Debug)]
pub struct Readiness {
    clock: Clock,
    is_ending: AtomicBool,
    /// When this instance was last seen without the right to admit.
    lapsed: Mutex<Option<Boottime>>,
}

impl Readiness {
    /// Ready from the start.
    #[must_use]
    pub fn new(clock: Clock) -> Readiness {
        Readiness { clock, is_ending: AtomicBool::new(false), lapsed: Mutex::new(None) }
    }

    /// A shutdown begins.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Why new requests are not welcome, if they are not; `is_live`: this instance may admit now.
    pub fn unready(&self, is_live: bool) -> Option<&'static str> {
        let now = self.clock.now();
        let mut lapsed = self.lapsed.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_live {
            *lapsed = Some(now);
        }
        if self.is_ending.load(Ordering::Relaxed) {
            Some("shutting down\n")
        } else if !is_live {
            Some("the lease of this instance in the store is over\n")
        } else if lapsed.is_some_and(|lapsed| now.since(lapsed) < STEADY) {
            Some("the lease of this instance in the store was over a moment ago\n")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_again_only_after_a_while() {
        let readiness = Readiness::new(Clock::new());
        assert_eq!(readiness.unready(true), None);
        assert!(readiness.unready(false).is_some_and(|why| why.contains("is over")));
        assert!(readiness.unready(true).is_some_and(|why| why.contains("a moment ago")));
        let long_ago = readiness.clock.now() - STEADY;
        *readiness.lapsed.lock().unwrap() = Some(long_ago);
        assert_eq!(readiness.unready(true), None);
        readiness.end();
        assert!(readiness.unready(true).is_some_and(|why| why.contains("shutting down")));
    }
}
