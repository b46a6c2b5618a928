//! What is counted and timed, and under which names.
//!
//! Labels are bounded by the configuration: route, upstream, code, class. The resource is never one.
//! Every series exists from the start, at zero. On the path of a request no label is looked up:
//! each route holds its own counters. What walks over resources is done by housekeeping and not by a scrape.

mod accept;
mod census;
mod exemplar;
mod fence;
mod gateway;
mod limits;
mod marked;
pub(crate) mod openmetrics;
mod pool;
mod process;
mod reloads;
mod store;
mod timing;

use prometheus::{Gauge, HistogramOpts, HistogramVec, IntCounter, IntGauge, Registry};

pub(crate) use accept::{Format, format};
pub use census::{Census, Limits};
pub use exemplar::Exemplars;
pub(crate) use fence::Counted;
pub use fence::FenceMetrics;
pub use gateway::{GatewayMetrics, RouteMetrics};
pub use limits::LimitMetrics;
pub(crate) use pool::{Connections, PoolMetrics};
pub use process::Process;
pub use reloads::ReloadMetrics;
pub use store::{Operation, StoreMetrics};
pub(crate) use timing::Timing;

/// What requests that no route takes are counted under.
pub(crate) const UNMATCHED_ROUTE: &str = "none";

/// Upper bounds in seconds: from a fast path's microseconds to a drain's minute.
const SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// The same in nanoseconds.
const BOUNDS: timing::Bounds = &[
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];

pub(crate) fn counter(
    registry: &Registry,
    name: &str,
    help: &str,
) -> prometheus::Result<IntCounter> {
    let counter = IntCounter::new(name, help)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

pub(crate) fn gauge(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    let gauge = IntGauge::new(name, help)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

fn seconds(registry: &Registry, name: &str, help: &str) -> prometheus::Result<Gauge> {
    let gauge = Gauge::new(name, help)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

fn histograms(
    registry: &Registry,
    name: &str,
    help: &str,
    label: &str,
) -> prometheus::Result<HistogramVec> {
    let histograms =
        HistogramVec::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), &[label])?;
    registry.register(Box::new(histograms.clone()))?;
    Ok(histograms)
}
