//! Acquisitions that wait, and the bounds on them: in all, since each keeps a connection and must leave some to the
//! holders, who would lose their leases if they could not renew; and for each resource, so that a crowd that wants
//! one lease keeps nobody from waiting for another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fence::Resource;
use crate::http_server::ApiBounds;
use crate::metrics::LimitMetrics;
use crate::problem::{Code, Problem};

/// See the module. Clones share the places.
#[derive(Clone)]
pub(super) struct Waiting {
    bounds: ApiBounds,
    hits: LimitMetrics,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_resource: HashMap<Resource, usize>,
}

/// The place of one that waits, until it is dropped.
pub(super) struct Place {
    waiting: Waiting,
    resource: Resource,
}

impl Waiting {
    pub(super) fn new(bounds: ApiBounds, hits: LimitMetrics) -> Waiting {
        Waiting { bounds, hits, taken: Arc::default() }
    }

    /// Takes a place.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn enter(&self, resource: &Resource) -> Result<Place, Problem> {
        let limits = self.bounds.get();
        let mut taken = self.taken();
        let of_resource = taken.by_resource.get(resource).copied().unwrap_or_default();
        if taken.all >= limits.lease_waiters {
            return Err(self.refuse("limits.lease_waiters", taken.all));
        }
        if of_resource >= limits.resource_lease_waiters {
            return Err(self.refuse("limits.resource_lease_waiters", of_resource));
        }
        taken.all += 1;
        taken.by_resource.insert(resource.clone(), of_resource + 1);
        Ok(Place { waiting: self.clone(), resource: resource.clone() })
    }

    fn refuse(&self, limit: &'static str, waiting: usize) -> Problem {
        self.hits.hit(limit);
        let detail = format!(
            "{limit} is reached: {waiting} acquisitions are waiting already; ask again, or with wait_ms 0"
        );
        Problem::new(Code::Overloaded, detail)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.waiting.taken();
        taken.all -= 1;
        if let Some(of_resource) = taken.by_resource.get_mut(&self.resource) {
            *of_resource -= 1;
            if *of_resource == 0 {
                taken.by_resource.remove(&self.resource);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::Registry;

    use super::*;
    use crate::config::ApiLimits;

    #[test]
    fn places_are_bounded_in_all_and_for_each_resource() {
        let limits = ApiLimits {
            connections: 8,
            client_connections: 8,
            body_bytes: 1,
            handshake_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            lease_waiters: 3,
            resource_lease_waiters: 2,
        };
        let hits = LimitMetrics::register(&Registry::new()).unwrap();
        let waiting = Waiting::new(ApiBounds::new(limits), hits);
        let [a, b] = ["a", "b"].map(|name| Resource::new(name).unwrap());
        let first = waiting.enter(&a).ok();
        let second = waiting.enter(&a).ok();
        assert!(first.is_some() && second.is_some());
        let refused = waiting.enter(&a).err().unwrap();
        assert!(refused.detail.contains("resource_lease_waiters"), "{refused:?}");
        let third = waiting.enter(&b).ok();
        let refused = waiting.enter(&b).err().unwrap();
        assert!(refused.detail.starts_with("limits.lease_waiters"), "{refused:?}");
        drop(first);
        assert!(waiting.enter(&b).is_ok());
        drop((second, third));
        assert!(waiting.taken().by_resource.is_empty() && waiting.taken().all == 0);
    }
}
