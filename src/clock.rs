//! The only place that reads time.
//!
//! Two clocks, two types. [`Boottime`] is `CLOCK_BOOTTIME`: it never goes back and, unlike
//! `std::time::Instant` on Linux, counts the time a machine was suspended, so a lease that ran out
//! during a suspension is seen as run out. [`WallTime`] is for people and for rows that outlive
//! the process. Within one process it is derived from `CLOCK_BOOTTIME`, so that a step of the
//! system's clock moves no deadline.

use std::time::Duration;

/// A moment on `CLOCK_BOOTTIME`, in nanoseconds since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boottime(u64);

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime(i64);

/// Reads time. Copy it to whoever needs to.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    boot: Boottime,
    wall: WallTime,
}

/// How often a sleeper looks at the clock: a tokio timer stands still while the machine is
/// suspended, so no sleep may be longer than the delay that is tolerable after it woke up.
const LOOK: Duration = Duration::from_millis(200);

impl Clock {
    /// Ties wall time to boot time, once per process.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads time")]
    pub fn new() -> Clock {
        let since_1970 =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Clock::tied(since_1970, Boottime::now())
    }

    /// `wall` is in whole milliseconds, so `boot` is the moment at which the present one began: else a fraction
    /// would be lost here, and another one whenever wall time is told.
    fn tied(since_1970: Duration, boot: Boottime) -> Clock {
        let fraction = u64::from(since_1970.subsec_nanos() % 1_000_000);
        Clock {
            boot: Boottime(boot.0.saturating_sub(fraction)),
            wall: WallTime(millis(since_1970)),
        }
    }

    /// Now, on the clock that counts suspension.
    #[must_use]
    pub fn now(&self) -> Boottime {
        Boottime::now()
    }

    /// Now, for people and for rows that outlive the process.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        self.wall + self.now().since(self.boot)
    }

    /// The wall time of a moment of this process's life.
    #[must_use]
    pub fn wall_at(&self, moment: Boottime) -> WallTime {
        if moment >= self.boot {
            self.wall + moment.since(self.boot)
        } else {
            WallTime(self.wall.0 - millis(self.boot.since(moment)))
        }
    }

    /// Sleeps until `moment`, which may pass while the machine is suspended.
    pub async fn sleep_until(&self, moment: Boottime) {
        loop {
            let left = moment.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

impl Boottime {
    fn now() -> Boottime {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Boottime(seconds * 1_000_000_000 + nanos)
    }

    /// Nanoseconds since the machine started.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Boottime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Boottime {
    type Output = Boottime;

    fn add(self, span: Duration) -> Boottime {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Boottime(self.0.saturating_add(nanos))
    }
}

impl std::ops::Sub<Duration> for Boottime {
    type Output = Boottime;

    fn sub(self, span: Duration) -> Boottime {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Boottime(self.0.saturating_sub(nanos))
    }
}

impl WallTime {
    /// Reads a database column or a wire field.
    #[must_use]
    pub const fn from_millis(millis: i64) -> WallTime {
        WallTime(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: WallTime) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl std::ops::Sub<Duration> for WallTime {
    type Output = WallTime;

    fn sub(self, span: Duration) -> WallTime {
        WallTime(self.0.saturating_sub(millis(span)))
    }
}

impl std::ops::Add<Duration> for WallTime {
    type Output = WallTime;

    fn add(self, span: Duration) -> WallTime {
        WallTime(self.0.saturating_add(millis(span)))
    }
}

/// RFC 3339 in UTC with milliseconds.
impl std::fmt::Display for WallTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{} ms after 1970", self.0),
        }
    }
}

impl serde::Serialize for WallTime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_is_less_than_a_millisecond_late() {
        let boot = Boottime(5_000_000_000);
        let clock = Clock::tied(Duration::new(1, 999_999), boot);
        assert_eq!(clock.wall_at(boot), WallTime(1000));
        assert_eq!(clock.wall_at(boot + Duration::from_nanos(1)), WallTime(1001));
    }
}
