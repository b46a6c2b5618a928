//! What is told of the coordinator's history.

use prometheus::{IntGauge, Registry};

/// The alert and the epoch. Clones share their numbers.
#[derive(Clone, Debug)]
pub struct GuardMetrics {
    pub(super) changed: IntGauge,
    pub(super) epoch: IntGauge,
}

impl GuardMetrics {
    /// Makes the series and adds them to `registry`: unchanged, in the first epoch.
    ///
    /// # Errors
    /// The registry has series of these names already.
    pub fn register(registry: &Registry) -> prometheus::Result<GuardMetrics> {
        let gauge = |name, help| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            prometheus::Result::Ok(gauge)
        };
        let metrics = GuardMetrics {
            changed: gauge(
                "fencegate_coordinator_changed",
                "1 while the coordinator has another history than before",
            )?,
            epoch: gauge(
                "fencegate_coordinator_epoch",
                "Which history of the coordinator it is, counted from 1",
            )?,
        };
        metrics.epoch.set(1);
        Ok(metrics)
    }
}
