//! What is counted and timed, and under which names.
//!
//! Labels are bounded by the configuration: route, upstream, code, class. The resource is never one.
//! Every series exists from the start, at zero. On the path of a request no label is looked up:
//! each route holds its own counters.

mod limits;
mod reloads;

use std::collections::HashMap;
use std::time::Duration;

use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry,
};

pub use limits::LimitMetrics;
pub use reloads::ReloadMetrics;

use crate::problem::Code;

/// What requests that no route takes are counted under.
pub(crate) const UNMATCHED_ROUTE: &str = "none";

/// Upper bounds in seconds: from a fast path's microseconds to a drain's minute.
const SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Of admission.
#[derive(Clone)]
pub struct FenceMetrics {
    pub(crate) raises: IntCounter,
    pub(crate) raise: Histogram,
    pub(crate) drain: Histogram,
    pub(crate) coordinator: Histogram,
    pub(crate) in_doubt_total: IntCounter,
    pub(crate) revoked: IntCounter,
}

/// Of the proxy listener, by route.
#[derive(Clone)]
pub struct RouteMetrics {
    pub(crate) reads: IntCounter,
    pub(crate) writes: IntCounter,
    pub(crate) request: Histogram,
    /// Decided from memory.
    pub(crate) from_memory: IntCounter,
    /// Decided after the store, the coordinator or older writes were waited for.
    pub(crate) after_waiting: IntCounter,
    pub(crate) admission: Histogram,
    pub(crate) upstream: Histogram,
    rejections: HashMap<Code, IntCounter>,
}

/// Makes and registers the proxy's metrics.
pub struct GatewayMetrics {
    requests: IntCounterVec,
    rejections: IntCounterVec,
    admissions: IntCounterVec,
    request: HistogramVec,
    admission: HistogramVec,
    upstream: HistogramVec,
}

/// Numbers that are looked up when they are asked for.
pub struct Census {
    pub(crate) cells: IntGauge,
    pub(crate) in_flight: IntGauge,
    pub(crate) grants: IntGauge,
    pub(crate) in_doubt: IntGauge,
    pub(crate) connections: IntGauge,
    pub(crate) lease: Gauge,
}

/// What is asked of the store, as its metric calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reading a fence before the first decision on it.
    Load,
    /// Raising a mark or recording a grant.
    Raise,
    /// Deleting grants that are over.
    GiveBack,
    /// Acquiring, renewing, releasing or sweeping leases.
    Lease,
    /// Looking up who holds a lease.
    Holder,
    /// Lists and rows for people.
    List,
    /// What is known of the coordinator's history.
    History,
    /// Asking whether other instances have older grants.
    Elsewhere,
    /// Asking what other instances want of this one.
    Look,
    /// Taking, renewing and ending this instance's lease, and ending others'.
    Instance,
}

/// Of the store.
#[derive(Clone, Debug)]
pub struct StoreMetrics {
    durations: [Histogram; Operation::ALL.len()],
}

impl Operation {
    const ALL: [Operation; 10] = [
        Operation::Load,
        Operation::Raise,
        Operation::GiveBack,
        Operation::Lease,
        Operation::Holder,
        Operation::List,
        Operation::History,
        Operation::Elsewhere,
        Operation::Look,
        Operation::Instance,
    ];

    const fn label(self) -> &'static str {
        match self {
            Operation::Load => "load",
            Operation::Raise => "raise",
            Operation::GiveBack => "give_back",
            Operation::Lease => "lease",
            Operation::Holder => "holder",
            Operation::List => "list",
            Operation::History => "history",
            Operation::Elsewhere => "elsewhere",
            Operation::Look => "look",
            Operation::Instance => "instance",
        }
    }
}

impl StoreMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<StoreMetrics> {
        let all = histograms(
            registry,
            "fencegate_store_duration_seconds",
            "Time from asking the store until its transaction was confirmed or had failed, by \
             operation.",
            "operation",
        )?;
        Ok(StoreMetrics {
            durations: Operation::ALL.map(|operation| all.with_label_values(&[operation.label()])),
        })
    }

    pub(crate) fn done(&self, operation: Operation, took: Duration) {
        self.durations[operation as usize].observe(took.as_secs_f64());
    }
}

impl FenceMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<FenceMetrics> {
        Ok(FenceMetrics {
            raises: counter(registry, "fencegate_raises_total", "High-water marks raised.")?,
            raise: histogram(
                registry,
                "fencegate_raise_duration_seconds",
                "Time until the store confirmed a raise or a grant.",
            )?,
            drain: histogram(
                registry,
                "fencegate_drain_duration_seconds",
                "Time that a write waited for older writes on its resource.",
            )?,
            coordinator: histogram(
                registry,
                "fencegate_coordinator_duration_seconds",
                "Time until the coordinator named the holder of a lease.",
            )?,
            in_doubt_total: counter(
                registry,
                "fencegate_in_doubt_writes_total",
                "Writes that were sent at least in part and whose outcome is unknown.",
            )?,
            revoked: counter(
                registry,
                "fencegate_grants_revoked_total",
                "Grants of this instance that had to go because another one has a newer token.",
            )?,
        })
    }
}

impl GatewayMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<GatewayMetrics> {
        let requests = IntCounterVec::new(
            Opts::new("fencegate_requests_total", "Requests, by route and method class."),
            &["route", "class"],
        )?;
        let rejections = IntCounterVec::new(
            Opts::new(
                "fencegate_rejections_total",
                "Answers of the gateway itself, by route and code; under mode = \"observe\" they \
                 were counted only. stale_fencing_token: a worker wrote after its lease was lost \
                 and a newer holder had written.",
            ),
            &["route", "code"],
        )?;
        registry.register(Box::new(requests.clone()))?;
        let admissions = IntCounterVec::new(
            Opts::new(
                "fencegate_admission_decisions_total",
                "Decisions about fenced writes: from memory, or after waiting for the store, the \
                 coordinator or older writes.",
            ),
            &["route", "path"],
        )?;
        registry.register(Box::new(rejections.clone()))?;
        registry.register(Box::new(admissions.clone()))?;
        Ok(GatewayMetrics {
            requests,
            rejections,
            admissions,
            request: histograms(
                registry,
                "fencegate_request_duration_seconds",
                "Time from a request's head to the head of its answer, refusals included.",
                "route",
            )?,
            admission: histograms(
                registry,
                "fencegate_admission_duration_seconds",
                "Time until a fenced write that could not be decided from memory was admitted or \
                 refused.",
                "route",
            )?,
            upstream: histograms(
                registry,
                "fencegate_upstream_duration_seconds",
                "Time from sending to the final response head.",
                "route",
            )?,
        })
    }

    /// The series of one route; `none` is the route of requests that match none.
    #[must_use]
    pub fn route(&self, name: &str) -> RouteMetrics {
        RouteMetrics {
            reads: self.requests.with_label_values(&[name, "read"]),
            writes: self.requests.with_label_values(&[name, "write"]),
            request: self.request.with_label_values(&[name]),
            from_memory: self.admissions.with_label_values(&[name, "memory"]),
            after_waiting: self.admissions.with_label_values(&[name, "waited"]),
            admission: self.admission.with_label_values(&[name]),
            upstream: self.upstream.with_label_values(&[name]),
            rejections: Code::ALL
                .iter()
                .filter(|code| code.is_of_the_proxy())
                .map(|code| (*code, self.rejections.with_label_values(&[name, code.as_str()])))
                .collect(),
        }
    }
}

impl RouteMetrics {
    pub(crate) fn reject(&self, code: Code) {
        if let Some(counter) = self.rejections.get(&code) {
            counter.inc();
        }
    }
}

impl Census {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<Census> {
        Ok(Census {
            cells: gauge(registry, "fencegate_cells", "Resources in memory.")?,
            in_flight: gauge(
                registry,
                "fencegate_in_flight_writes",
                "Fenced writes that were forwarded and are not over.",
            )?,
            grants: gauge(registry, "fencegate_grants", "Grants of this instance.")?,
            in_doubt: gauge(
                registry,
                "fencegate_in_doubt_writes",
                "Writes in doubt of this run that can still take effect.",
            )?,
            connections: gauge(
                registry,
                "fencegate_connections",
                "Client connections to the proxy listener.",
            )?,
            lease: seconds(
                registry,
                "fencegate_instance_lease_age_seconds",
                "Time since this instance's own lease in the store was renewed; 0 where it has the \
                 store to itself.",
            )?,
        })
    }
}

pub(crate) fn counter(
    registry: &Registry,
    name: &str,
    help: &str,
) -> prometheus::Result<IntCounter> {
    let counter = IntCounter::new(name, help)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

fn gauge(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    let gauge = IntGauge::new(name, help)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

fn seconds(registry: &Registry, name: &str, help: &str) -> prometheus::Result<Gauge> {
    let gauge = Gauge::new(name, help)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

fn histogram(registry: &Registry, name: &str, help: &str) -> prometheus::Result<Histogram> {
    let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()))?;
    registry.register(Box::new(histogram.clone()))?;
    Ok(histogram)
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
