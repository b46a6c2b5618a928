//! A rate, kept as one number: the time at which everything that was let in would have been let in if it had come
//! evenly spread (the generic cell rate algorithm). One that is ahead of now by the rate's whole span is used up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Boottime;
use crate::config::Rate;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Bucket {
    /// In nanoseconds of boot time.
    even: AtomicU64,
}

impl Bucket {
    /// Lets one in, or says how long the next one has to wait.
    pub(in crate::gateway) fn take(&self, rate: Rate, now: Boottime) -> Result<(), Duration> {
        let now = now.as_nanos();
        let span = nanos(rate.per);
        let step = span / u64::from(rate.count);
        let mut even = self.even.load(Ordering::Relaxed);
        loop {
            let next = even.max(now) + step;
            let ahead = next - now;
            if ahead > span {
                return Err(Duration::from_nanos(ahead - span));
            }
            match self.even.compare_exchange_weak(even, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(other) => even = other,
            }
        }
    }

    /// Whether it is as good as a new one.
    pub(in crate::gateway) fn is_full(&self, now: Boottime) -> bool {
        self.even.load(Ordering::Relaxed) <= now.as_nanos()
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn rate(count: u32) -> Rate {
        Rate { count, per: Duration::from_secs(1) }
    }

    fn taken(bucket: &Bucket, rate: Rate, now: Boottime) -> usize {
        std::iter::repeat_with(|| bucket.take(rate, now)).take_while(Result::is_ok).count()
    }

    #[test]
    fn a_second_s_worth_at_once_and_then_evenly() {
        let (bucket, start) = (Bucket::default(), Clock::new().now());
        assert_eq!(taken(&bucket, rate(10), start), 10);
        assert_eq!(bucket.take(rate(10), start), Err(Duration::from_millis(100)));
        assert_eq!(taken(&bucket, rate(10), start + Duration::from_millis(350)), 3);
        assert_eq!(taken(&bucket, rate(10), start + Duration::from_secs(100)), 10);
    }

    #[test]
    fn it_is_as_good_as_new_when_nothing_is_owed() {
        let (bucket, start) = (Bucket::default(), Clock::new().now());
        assert!(bucket.is_full(start));
        bucket.take(rate(2), start).unwrap();
        assert!(!bucket.is_full(start));
        assert!(bucket.is_full(start + Duration::from_millis(500)));
    }

    #[test]
    fn refusals_cost_nothing() {
        let (bucket, start) = (Bucket::default(), Clock::new().now());
        assert_eq!(taken(&bucket, rate(1), start), 1);
        for _ in 0..1000 {
            assert!(bucket.take(rate(1), start).is_err());
        }
        assert_eq!(taken(&bucket, rate(1), start + Duration::from_secs(1)), 1);
    }
}
