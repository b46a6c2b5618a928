//! A request that was let in, and counts until it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Bucket, Client, ClientLimits};
use crate::clock::Boottime;
use crate::config::Rate;

/// What one route has under way, of all threads together.
#[derive(Debug, Default)]
pub(in crate::gateway) struct RouteLoad {
    under_way: AtomicUsize,
    bucket: Bucket,
}

/// Which limit a request is beyond. The names are those of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} is reached: {what}")]
pub(in crate::gateway) struct Limited {
    pub(in crate::gateway) limit: &'static str,
    what: &'static str,
    /// When it is worth another try.
    pub(in crate::gateway) after: Duration,
}

/// Counts as under way until all clones are dropped: those of a write that goes on without its client, and of an
/// answer that is still read. Costs nothing where no limit wants it.
#[derive(Clone)]
pub(in crate::gateway) struct Turn(
    #[expect(dead_code, reason = "it matters when it is dropped")] Option<Arc<Counted>>,
);

#[derive(Default)]
struct Counted {
    client: Option<Arc<Client>>,
    route: Option<Arc<RouteLoad>>,
}

impl Limited {
    const fn concurrency(limit: &'static str) -> Limited {
        Limited { limit, what: "too many requests are under way", after: Duration::from_secs(1) }
    }

    const fn rate(limit: &'static str, after: Duration) -> Limited {
        Limited { limit, what: "too many requests came", after }
    }

    /// No connection to the upstream came free.
    pub(in crate::gateway) const fn upstream(limit: &'static str) -> Limited {
        Limited {
            limit,
            what: "too many requests wait for the upstream",
            after: Duration::from_secs(1),
        }
    }

    /// Seconds for `Retry-After`.
    pub(in crate::gateway) fn retry_after_seconds(&self) -> u64 {
        self.after.as_millis().div_ceil(1000).max(1).try_into().unwrap_or(u64::MAX)
    }
}

impl Turn {
    /// Of what is not counted.
    pub(in crate::gateway) const FREE: Turn = Turn(None);

    /// Lets a request of `client` in on a route.
    pub(in crate::gateway) fn take(
        client: &Arc<Client>,
        limits: &ClientLimits,
        route: &Arc<RouteLoad>,
        (concurrency, rate): (Option<usize>, Option<Rate>),
        now: Boottime,
    ) -> Result<Turn, Limited> {
        charge(client, limits, now)?;
        if let Some(rate) = rate {
            let taken = route.bucket.take(rate, now);
            taken.map_err(|after| Limited::rate("route.rate", after))?;
        }
        if limits.concurrency.is_none() && concurrency.is_none() {
            return Ok(Turn::FREE);
        }
        // Dropped on the way out if only the first of the two has room.
        let mut counted = Counted::default();
        if let Some(limit) = limits.concurrency {
            if !enter(&client.under_way, limit) {
                return Err(Limited::concurrency("limits.client_concurrency"));
            }
            counted.client = Some(Arc::clone(client));
        }
        if let Some(limit) = concurrency {
            if !enter(&route.under_way, limit) {
                return Err(Limited::concurrency("route.concurrency"));
            }
            counted.route = Some(Arc::clone(route));
        }
        Ok(Turn(Some(Arc::new(counted))))
    }
}

/// Counts a request against the rate of its client.
pub(in crate::gateway) fn charge(
    client: &Client,
    limits: &ClientLimits,
    now: Boottime,
) -> Result<(), Limited> {
    let Some(rate) = limits.rate else { return Ok(()) };
    client.bucket.take(rate, now).map_err(|after| Limited::rate("limits.client_rate", after))
}

fn enter(under_way: &AtomicUsize, limit: usize) -> bool {
    if under_way.fetch_add(1, Ordering::Relaxed) < limit {
        return true;
    }
    under_way.fetch_sub(1, Ordering::Relaxed);
    false
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(client) = &self.client {
            client.under_way.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(route) = &self.route {
            route.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
