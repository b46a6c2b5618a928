//! Of the proxy listener, by route.

use std::collections::HashMap;
use std::time::Duration;

use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::exemplar::Exemplars;
use super::fence::FenceMetrics;
use super::marked::{Marked, MarkedCounters};
use super::timing::{Bounds, Timing, Timings};
use super::{BOUNDS, UNMATCHED_ROUTE};
use crate::config::{Config, Mode, Route, Tokens};
use crate::problem::Code;
use crate::trace::TraceId;

/// From a worker that lost a race to one that slept over night, in nanoseconds.
const AGES: Bounds = &[
    10_000_000,
    100_000_000,
    1_000_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    300_000_000_000,
    900_000_000_000,
    3_600_000_000_000,
    21_600_000_000_000,
    86_400_000_000_000,
];

/// One route's series.
#[derive(Clone)]
pub struct RouteMetrics {
    pub(crate) reads: IntCounter,
    pub(crate) writes: IntCounter,
    pub(crate) request: Timing,
    /// Decided from memory.
    pub(crate) from_memory: Decisions,
    /// Decided after the store, the coordinator or older writes were waited for.
    pub(crate) after_waiting: Decisions,
    pub(crate) admission: Timing,
    pub(crate) upstream: Timing,
    /// How long before a stale write the newer token was accepted.
    pub(crate) stale_age: Timing,
    rejections: HashMap<Code, Marked>,
}

/// Decisions about fenced writes.
#[derive(Clone)]
pub(crate) struct Decisions {
    admitted: IntCounter,
    refused: IntCounter,
}

/// Makes and registers the proxy's metrics.
pub struct GatewayMetrics {
    requests: IntCounterVec,
    rejections: MarkedCounters,
    admissions: IntCounterVec,
    request: Timings,
    admission: Timings,
    upstream: Timings,
    stale_age: Timings,
    configured: Configured,
    fences: FenceMetrics,
}

/// What routes are, for queries to join with and to compare with.
struct Configured {
    info: IntGaugeVec,
    drain_limit: GaugeVec,
    settle: GaugeVec,
}

impl Decisions {
    pub(crate) fn count(&self, is_admitted: bool) {
        if is_admitted { &self.admitted } else { &self.refused }.inc();
    }
}

impl GatewayMetrics {
    /// Registers them. A route's writes in doubt are counted with `fences`.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(
        registry: &Registry,
        exemplars: &Exemplars,
        fences: &FenceMetrics,
    ) -> prometheus::Result<GatewayMetrics> {
        let counters = |name, help, labels: &[&str]| {
            let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counters.clone()))?;
            prometheus::Result::Ok(counters)
        };
        let timings = |name, help, bounds| {
            Timings::register(registry, exemplars, name, help, Some("route"), bounds)
        };
        Ok(GatewayMetrics {
            configured: Configured::register(registry)?,
            requests: counters(
                "fencegate_requests_total",
                "Requests, by route and method class.",
                &["route", "class"],
            )?,
            rejections: MarkedCounters::register(
                registry,
                exemplars,
                "fencegate_rejections_total",
                "Answers of the gateway itself, by route and code; under mode = \"observe\" they \
                 were counted only. stale_fencing_token: a worker wrote after its lease was lost \
                 and a newer holder had written.",
                &["code", "route"],
            )?,
            admissions: counters(
                "fencegate_admission_decisions_total",
                "Decisions about fenced writes: from memory, or after waiting for the store, the \
                 coordinator or older writes.",
                &["route", "path", "decision"],
            )?,
            request: timings(
                "fencegate_request_duration_seconds",
                "Time from a request's head to the head of its answer, refusals included.",
                BOUNDS,
            )?,
            admission: timings(
                "fencegate_admission_duration_seconds",
                "Time until a fenced write that could not be decided from memory was admitted or \
                 refused.",
                BOUNDS,
            )?,
            upstream: timings(
                "fencegate_upstream_duration_seconds",
                "Time from sending to the final response head.",
                BOUNDS,
            )?,
            stale_age: timings(
                "fencegate_stale_write_age_seconds",
                "Time since the newer token was accepted, of each write that came too late.",
                AGES,
            )?,
            fences: fences.clone(),
        })
    }

    /// The series of one route.
    #[must_use]
    pub fn route(&self, name: &str) -> RouteMetrics {
        self.named(name)
    }

    /// Says what routes are from now on, and no more what those of `before` were.
    pub fn configure(&self, config: &Config, before: Option<&Config>) {
        for route in &config.routes {
            self.configured.set(config, route);
        }
        for (before, route) in before.iter().flat_map(|c| c.routes.iter().map(move |r| (c, r))) {
            self.configured.forget(config, before, route);
        }
    }

    /// The series of requests that match no route.
    #[must_use]
    pub fn unmatched(&self) -> RouteMetrics {
        self.named(UNMATCHED_ROUTE)
    }

    fn named(&self, name: &str) -> RouteMetrics {
        let decisions = |path| Decisions {
            admitted: self.admissions.with_label_values(&[name, path, "admitted"]),
            refused: self.admissions.with_label_values(&[name, path, "refused"]),
        };
        self.fences.expect(name);
        RouteMetrics {
            reads: self.requests.with_label_values(&[name, "read"]),
            writes: self.requests.with_label_values(&[name, "write"]),
            request: self.request.series(name),
            from_memory: decisions("memory"),
            after_waiting: decisions("waited"),
            admission: self.admission.series(name),
            upstream: self.upstream.series(name),
            stale_age: self.stale_age.series(name),
            rejections: Code::ALL
                .iter()
                .filter(|code| code.is_of_the_proxy())
                .map(|code| (*code, self.rejections.series(&[code.as_str(), name])))
                .collect(),
        }
    }
}

impl Configured {
    fn register(registry: &Registry) -> prometheus::Result<Configured> {
        let gauges = |name, help| {
            let gauges = GaugeVec::new(Opts::new(name, help), &["route"])?;
            registry.register(Box::new(gauges.clone()))?;
            prometheus::Result::Ok(gauges)
        };
        let info = IntGaugeVec::new(
            Opts::new("fencegate_route_info", "What a route is; always 1."),
            &["route", "upstream", "mode", "tokens"],
        )?;
        registry.register(Box::new(info.clone()))?;
        Ok(Configured {
            info,
            drain_limit: gauges(
                "fencegate_route_drain_limit_seconds",
                "How long older writes may finish before they are cut, as configured.",
            )?,
            settle: gauges(
                "fencegate_route_settle_seconds",
                "Time after which a write in doubt can no longer take effect, as configured.",
            )?,
        })
    }

    fn set(&self, config: &Config, route: &Route) {
        let settle = config.upstreams[route.upstream].settle;
        self.info.with_label_values(&labels(config, route)).set(1);
        self.drain_limit.with_label_values(&[&route.name]).set(route.drain.as_secs_f64());
        self.settle.with_label_values(&[&route.name]).set(settle.as_secs_f64());
    }

    fn forget(&self, config: &Config, before: &Config, route: &Route) {
        let old = labels(before, route);
        // That there is none is as good.
        if !config.routes.iter().any(|route| labels(config, route) == old) {
            let _ = self.info.remove_label_values(&old);
        }
        if !config.routes.iter().any(|kept| kept.name == route.name) {
            let _ = self.drain_limit.remove_label_values(&[&route.name]);
            let _ = self.settle.remove_label_values(&[&route.name]);
        }
    }
}

fn labels<'c>(config: &'c Config, route: &'c Route) -> [&'c str; 4] {
    let mode = match route.mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
    };
    let tokens = match route.tokens {
        Tokens::Held => "held",
        Tokens::Ordered => "ordered",
    };
    [&route.name, &config.upstreams[route.upstream].name, mode, tokens]
}

impl RouteMetrics {
    /// Counts an answer of the gateway itself; a stale write with how late it was.
    pub(crate) fn reject(&self, code: Code, late_by: Option<Duration>, trace_id: TraceId) {
        if let Some(counter) = self.rejections.get(&code) {
            counter.inc(Some(trace_id));
        }
        if let Some(late_by) = late_by {
            self.stale_age.observe(late_by, trace_id);
        }
    }
}
