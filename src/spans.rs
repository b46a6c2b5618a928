//! Spans for a collector of OpenTelemetry: one per decision, of requests whose `traceparent` says that they are
//! sampled.
//!
//! Owned here: the bounded queue between those who decide and the task that exports. Invariant: nobody ever
//! waits for the collector; what finds the queue full is dropped and counted. Without `telemetry.otlp` there is
//! no queue, no task, and nothing to ask but whether there is one.
//! Deliberately absent: traces of the gateway's own. A request without a `traceparent` belongs to none, and
//! whether to record is decided where a trace begins.

mod export;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};
use tokio::sync::mpsc;

use crate::clock::{Boottime, Clock};
use crate::fence::Token;
use crate::trace::{Parent, SpanId, TraceIds};

pub use export::{Collector, Exporter};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Some megabytes at the most. A collector that stands still for a few seconds costs nothing.
const QUEUE_SPANS: usize = 4096;

/// What was decided about a request, or became of it, and when.
#[derive(Clone, Debug)]
pub struct Span {
    pub(crate) parent: Parent,
    pub(crate) id: SpanId,
    pub(crate) started: Boottime,
    pub(crate) took: Duration,
    pub(crate) method: String,
    pub(crate) route: Option<Arc<str>>,
    pub(crate) resource: Option<String>,
    pub(crate) token: Option<Token>,
    pub(crate) mark: Option<Token>,
    pub(crate) decision: Decision,
    /// Of the gateway's own answer.
    pub(crate) code: Option<&'static str>,
    pub(crate) outcome: &'static str,
    /// Of the answer.
    pub(crate) status: Option<u16>,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The write was admitted.
    Admitted,
    /// The request was refused.
    Refused,
    /// It would have been refused, and was forwarded: the route only observes.
    Observed,
}

/// Takes spans. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Spans {
    queue: mpsc::Sender<Box<Span>>,
    ids: Arc<TraceIds>,
    clock: Clock,
    dropped: IntCounter,
}

/// What became of spans.
#[derive(Clone, Debug)]
pub struct SpanMetrics {
    exported: IntCounter,
    dropped: IntCounter,
    failed: IntCounter,
}

impl SpanMetrics {
    /// Registers them; they stay at zero without a collector.
    ///
    /// # Errors
    /// The name is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<SpanMetrics> {
        let spans = IntCounterVec::new(
            Opts::new("fencegate_trace_spans_total", "Spans for the collector, by result."),
            &["result"],
        )?;
        registry.register(Box::new(spans.clone()))?;
        Ok(SpanMetrics {
            exported: spans.with_label_values(&["exported"]),
            dropped: spans.with_label_values(&["dropped"]),
            failed: spans.with_label_values(&["failed"]),
        })
    }
}

impl Spans {
    /// A queue, and what empties it. It ends when all that take spans are gone, and the queue is empty.
    #[must_use]
    pub fn new(collector: Collector, clock: Clock, metrics: SpanMetrics) -> (Spans, Exporter) {
        let (queue, waiting) = mpsc::channel(QUEUE_SPANS);
        let dropped = metrics.dropped.clone();
        let exporter = Exporter::new(collector, clock, metrics, waiting);
        (Spans { queue, ids: Arc::new(TraceIds::new()), clock, dropped }, exporter)
    }

    /// Where the request came from, if its trace is recorded.
    pub(crate) fn parent(headers: &HeaderMap) -> Option<Parent> {
        let field = headers.get(TRACEPARENT)?;
        Parent::of_traceparent(field.as_bytes()).filter(|parent| parent.is_sampled)
    }

    /// A span that has begun. Until it is ended, its outcome is unknown.
    pub(crate) fn begin(&self, parent: Parent, started: Boottime, decision: Decision) -> Open {
        let span = Box::new(Span {
            parent,
            id: self.ids.next_span(),
            started,
            took: Duration::ZERO,
            method: String::new(),
            route: None,
            resource: None,
            token: None,
            mark: None,
            decision,
            code: None,
            outcome: "unknown",
            status: None,
        });
        Open { span: Some(span), spans: self.clone() }
    }
}

/// A span that goes on until it is dropped.
#[derive(Debug)]
pub(crate) struct Open {
    span: Option<Box<Span>>,
    spans: Spans,
}

impl Open {
    /// Says more of it.
    pub(crate) fn set(&mut self, set: impl FnOnce(&mut Span)) {
        if let Some(span) = &mut self.span {
            set(span);
        }
    }

    /// Makes the upstream's spans children of this one.
    pub(crate) fn adopt(&self, headers: &mut HeaderMap) {
        let Some(span) = &self.span else { return };
        let here = Parent { span_id: span.id, ..span.parent };
        if let Ok(value) = HeaderValue::try_from(here.to_traceparent()) {
            headers.insert(TRACEPARENT, value);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(mut span) = self.span.take() else { return };
        span.took = self.spans.clock.now().since(span.started);
        if self.spans.queue.try_send(span).is_err() {
            self.spans.dropped.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_the_queue_full_is_dropped_and_counted() {
        let clock = Clock::new();
        let metrics = SpanMetrics::register(&Registry::new()).unwrap();
        let collector = Collector { url: "http://127.0.0.1:9".into(), service: "test".into() };
        let (spans, exporter) = Spans::new(collector, clock, metrics.clone());
        let field = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = Parent::of_traceparent(field).unwrap();
        for _ in 0..QUEUE_SPANS + 3 {
            drop(spans.begin(parent, clock.now(), Decision::Refused));
        }
        assert_eq!(metrics.dropped.get(), 3);
        drop(exporter);
        drop(spans.begin(parent, clock.now(), Decision::Refused));
        assert_eq!(metrics.dropped.get(), 4, "nobody waits for an exporter that is gone either");
    }
}
