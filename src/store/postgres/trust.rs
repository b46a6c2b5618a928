//! Which connections of the pool still count.
//!
//! A primary whose standby took over may be alive, and then its connections are, too: each call on them waits for
//! a commit that never comes, or for a lock of such a one, and says so in good order. Given back to the pool, such a
//! connection would be used again and again. So when something took too long, every connection that is older
//! than that is closed instead of used, and a new one is made by the address that leads to the primary now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Trust {
    clock: Clock,
    /// Nanoseconds on the clock; none before it counts.
    lost_at: Arc<AtomicU64>,
}

impl Trust {
    pub(super) fn new(clock: Clock) -> Trust {
        Trust { clock, lost_at: Arc::default() }
    }

    /// From now on only connections count that are made from now on.
    pub(super) fn lose(&self) {
        self.lost_at.store(self.clock.now().as_nanos(), Ordering::Release);
    }

    /// Whether a connection of this age counts.
    pub(super) fn is_in(&self, age: Duration) -> bool {
        let lost_at = self.lost_at.load(Ordering::Acquire);
        let ago = self.clock.now().as_nanos().saturating_sub(lost_at);
        lost_at == 0 || age < Duration::from_nanos(ago)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_from_before_something_took_too_long_do_not_count() {
        let trust = Trust::new(Clock::new());
        assert!(trust.is_in(Duration::from_mins(1)));
        trust.lose();
        assert!(!trust.is_in(Duration::from_mins(1)));
        std::thread::sleep(Duration::from_millis(2));
        assert!(trust.is_in(Duration::from_nanos(1)));
    }
}
