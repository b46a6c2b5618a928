//! What is counted of the life of an instance among others.

use prometheus::{IntCounter, Registry};

use crate::metrics::counter;

/// Of this instance's lease, and of what it does about others'. All stay at zero without others.
#[derive(Clone)]
pub struct InstanceMetrics {
    pub(super) renewals_failed: IntCounter,
    pub(super) starts_over: IntCounter,
    pub(super) fenced: IntCounter,
}

impl InstanceMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<InstanceMetrics> {
        Ok(InstanceMetrics {
            renewals_failed: counter(
                registry,
                "fencegate_instance_renewals_failed_total",
                "Renewals of this instance's own lease that the store did not confirm.",
            )?,
            starts_over: counter(
                registry,
                "fencegate_instance_starts_over_total",
                "Times that this instance's own lease was over, so that it cut all and began anew.",
            )?,
            fenced: counter(
                registry,
                "fencegate_instances_fenced_total",
                "Other instances that this one took for dead.",
            )?,
        })
    }
}
