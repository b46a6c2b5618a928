//! Whether the configuration that is in use is the one that was given.

use prometheus::{Gauge, IntCounter, IntCounterVec, Opts, Registry};

use crate::clock::WallTime;

/// Of configuration reloads.
#[derive(Clone, Debug)]
pub struct ReloadMetrics {
    applied: IntCounter,
    refused: IntCounter,
    success: Gauge,
}

impl ReloadMetrics {
    /// Registers them. The start, at `now`, is when a configuration was taken over for the first time.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry, now: WallTime) -> prometheus::Result<ReloadMetrics> {
        let reloads = IntCounterVec::new(
            Opts::new(
                "fencegate_config_reloads_total",
                "New configurations, by what became of them: applied, or refused as a whole.",
            ),
            &["result"],
        )?;
        registry.register(Box::new(reloads.clone()))?;
        let success = Gauge::new(
            "fencegate_config_reload_success_timestamp_seconds",
            "When a configuration was taken over last, in Unix time; the start counts as well.",
        )?;
        registry.register(Box::new(success.clone()))?;
        let metrics = ReloadMetrics {
            applied: reloads.with_label_values(&["applied"]),
            refused: reloads.with_label_values(&["refused"]),
            success,
        };
        metrics.took_over(now);
        Ok(metrics)
    }

    pub(crate) fn applied(&self, now: WallTime) {
        self.applied.inc();
        self.took_over(now);
    }

    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    fn took_over(&self, now: WallTime) {
        self.success.set((now.as_millis() / 1000) as f64);
    }
}
