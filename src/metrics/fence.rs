//! Of admission.

use std::time::Duration;

use prometheus::{Gauge, IntCounter, IntGauge, Registry};

use super::exemplar::Exemplars;
use super::marked::{Marked, MarkedCounters};
use super::timing::{Timing, Timings};
use super::{BOUNDS, counter, gauge, seconds};
use crate::fences::DoubtReason;
use crate::trace::TraceId;

/// Of admission, and of what housekeeping counts in memory.
#[derive(Clone)]
pub struct FenceMetrics {
    pub(crate) raises: Marked,
    pub(crate) raise: Timing,
    pub(crate) drain: Timing,
    pub(crate) coordinator: Timing,
    pub(super) in_doubt: MarkedCounters,
    pub(crate) revoked: IntCounter,
    /// Writes in admission that wait for something.
    pub(crate) waiting: IntGauge,
    /// Those of them that wait for older ones.
    pub(crate) draining: IntGauge,
    cells: IntGauge,
    in_flight: IntGauge,
    grants: IntGauge,
    drain_age: Gauge,
}

/// What a walk over all resources in memory counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) cells: i64,
    pub(crate) in_flight: i64,
    pub(crate) grants: i64,
    /// Of the longest drain that is not over.
    pub(crate) drain_age: Duration,
}

impl FenceMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(
        registry: &Registry,
        exemplars: &Exemplars,
    ) -> prometheus::Result<FenceMetrics> {
        let timing = |name, help| {
            let timings = Timings::register(registry, exemplars, name, help, None, BOUNDS)?;
            prometheus::Result::Ok(timings.series(""))
        };
        let marked =
            |name, help, labels| MarkedCounters::register(registry, exemplars, name, help, labels);
        let gauge = |name, help| gauge(registry, name, help);
        Ok(FenceMetrics {
            raises: marked("fencegate_raises_total", "High-water marks raised.", &[])?.series(&[]),
            raise: timing(
                "fencegate_raise_duration_seconds",
                "Time until the store confirmed a raise or a grant.",
            )?,
            drain: timing(
                "fencegate_drain_duration_seconds",
                "Time that a write waited for older writes on its resource.",
            )?,
            coordinator: timing(
                "fencegate_coordinator_duration_seconds",
                "Time until the coordinator named the holder of a lease.",
            )?,
            in_doubt: marked(
                "fencegate_in_doubt_writes_total",
                "Writes that were sent at least in part and whose outcome is unknown, by route and \
                 reason.",
                &["reason", "route"],
            )?,
            revoked: counter(
                registry,
                "fencegate_grants_revoked_total",
                "Grants of this instance that had to go because another one has a newer token.",
            )?,
            waiting: gauge(
                "fencegate_waiting_writes",
                "Writes that wait in admission: for the store, the coordinator or older writes.",
            )?,
            draining: gauge(
                "fencegate_draining_writes",
                "Writes that wait in admission for older writes.",
            )?,
            cells: gauge("fencegate_cells", "Resources in memory.")?,
            in_flight: gauge(
                "fencegate_in_flight_writes",
                "Fenced writes that were forwarded and are not over.",
            )?,
            grants: gauge("fencegate_grants", "Grants of this instance.")?,
            drain_age: seconds(
                registry,
                "fencegate_drain_age_seconds",
                "Time since a newer token came for the longest of the drains that are not over; 0 \
                 without any.",
            )?,
        })
    }

    /// Makes the series of a route's writes in doubt.
    pub(super) fn expect(&self, route: &str) {
        for reason in DoubtReason::ALL {
            self.in_doubt.series(&[reason.as_str(), route]);
        }
    }

    pub(crate) fn in_doubt(&self, route: &str, reason: DoubtReason, trace_id: Option<TraceId>) {
        self.in_doubt.series(&[reason.as_str(), route]).inc(trace_id);
    }

    pub(crate) fn counted(&self, counted: Counted) {
        let Counted { cells, in_flight, grants, drain_age } = counted;
        self.cells.set(cells);
        self.in_flight.set(in_flight);
        self.grants.set(grants);
        self.drain_age.set(drain_age.as_secs_f64());
    }
}
