//! How often which limit was reached.

use prometheus::{IntCounterVec, Opts, Registry};

/// What [`LimitMetrics::hit`] takes: the keys of the configuration that bound load.
const LIMITS: [&str; 9] = [
    "limits.connections",
    "limits.client_connections",
    "limits.client_concurrency",
    "limits.client_rate",
    "limits.lease_waiters",
    "limits.resource_lease_waiters",
    "route.concurrency",
    "route.rate",
    "upstream.connections",
];

/// Counts what was refused because a limit was reached, by limit.
#[derive(Clone, Debug)]
pub struct LimitMetrics(IntCounterVec);

impl LimitMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<LimitMetrics> {
        let hits = IntCounterVec::new(
            Opts::new(
                "fencegate_limit_hits_total",
                "Requests and connections that were refused because a limit was reached, by the \
                 limit's key in the configuration.",
            ),
            &["limit"],
        )?;
        registry.register(Box::new(hits.clone()))?;
        for limit in LIMITS {
            hits.with_label_values(&[limit]);
        }
        Ok(LimitMetrics(hits))
    }

    /// Counts one refusal.
    pub(crate) fn hit(&self, limit: &'static str) {
        self.0.with_label_values(&[limit]).inc();
    }
}
