//! Numbers that are looked up when they are asked for: none of them by walking over anything that grows with
//! the number of resources.

use std::time::Duration;

use prometheus::{Gauge, IntCounter, IntGauge, IntGaugeVec, Opts, Registry};
use tracing_appender::non_blocking::ErrorCounter;

use super::{counter, gauge, seconds};

/// See the module.
pub struct Census {
    pub(crate) unsettled: IntGauge,
    pub(crate) connections: IntGauge,
    pub(crate) lease_age: Gauge,
    lease_remaining: Gauge,
    pub(crate) ready: IntGauge,
    cells_limit: IntGauge,
    connections_limit: IntGauge,
    log: ErrorCounter,
    log_dropped: IntCounter,
}

/// How much of it there may be, as configured.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Resources in memory.
    pub cells: usize,
    /// Client connections.
    pub connections: usize,
}

impl Census {
    /// Registers them, and what never changes.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(
        registry: &Registry,
        limits: Limits,
        log: ErrorCounter,
    ) -> prometheus::Result<Census> {
        let build = IntGaugeVec::new(
            Opts::new("fencegate_build_info", "Which version this is; always 1."),
            &["version"],
        )?;
        registry.register(Box::new(build.clone()))?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let gauge = |name, help| gauge(registry, name, help);
        let census = Census {
            cells_limit: gauge(
                "fencegate_cells_limit",
                "Resources in memory above which idle ones have to go.",
            )?,
            connections_limit: gauge(
                "fencegate_connections_limit",
                "Client connections that the proxy listener takes.",
            )?,
            unsettled: gauge(
                "fencegate_unsettled_writes",
                "Writes in doubt of this run that can still take effect.",
            )?,
            connections: gauge(
                "fencegate_connections",
                "Client connections to the proxy listener.",
            )?,
            lease_age: seconds(
                registry,
                "fencegate_instance_lease_age_seconds",
                "Time since this instance's own lease in the store was renewed; 0 where it has the \
                 store to itself.",
            )?,
            lease_remaining: seconds(
                registry,
                "fencegate_instance_lease_remaining_seconds",
                "Time until this instance's own lease in the store is over, and it admits nothing; \
                 +Inf where it has the store to itself.",
            )?,
            ready: gauge("fencegate_ready", "1 while new requests are welcome, as /readyz says.")?,
            log,
            log_dropped: counter(
                registry,
                "fencegate_log_lines_dropped_total",
                "Lines of the log that nobody read in time.",
            )?,
        };
        census.limit(limits);
        Ok(census)
    }

    /// Says which limits hold from now on.
    pub fn limit(&self, limits: Limits) {
        self.cells_limit.set(limits.cells.cast_signed() as i64);
        self.connections_limit.set(limits.connections.cast_signed() as i64);
    }

    pub(crate) fn look_at_log(&self) {
        let dropped = self.log.dropped_lines() as u64;
        self.log_dropped.inc_by(dropped.saturating_sub(self.log_dropped.get()));
    }

    /// `None`: it never is over.
    pub(crate) fn lease_remaining(&self, remaining: Option<Duration>) {
        self.lease_remaining
            .set(remaining.map_or(f64::INFINITY, |remaining| remaining.as_secs_f64()));
    }
}
