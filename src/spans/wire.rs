//! Spans as OpenTelemetry's protocol has them.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Wired, Status};

use super::{Decision, Span};
use crate::clock::Clock;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// In a span's flags beside those of its trace: whether its parent is of another process is known, and it is.
const HAS_REMOTE_PARENT: u32 = 0x300;

/// Turns spans into requests.
#[derive(Debug)]
pub(super) struct Wire {
    service: String,
    clock: Clock,
}

impl Wire {
    pub(super) const fn new(service: String, clock: Clock) -> Wire {
        Wire { service, clock }
    }

    pub(super) fn request(&self, spans: &[Box<Span>]) -> ExportTraceServiceRequest {
        let resource = Resource {
            attributes: vec![text("service.name", &self.service), text("service.version", VERSION)],
            ..Resource::default()
        };
        let scope = InstrumentationScope {
            name: "fencegate".to_owned(),
            version: VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        let spans = ScopeSpans {
            scope: Some(scope),
            spans: spans.iter().map(|span| self.span(span)).collect(),
            ..ScopeSpans::default()
        };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(resource),
                scope_spans: vec![spans],
                ..ResourceSpans::default()
            }],
        }
    }

    fn span(&self, span: &Span) -> Wired {
        let millis = u64::try_from(self.clock.wall_at(span.started).as_millis()).unwrap_or(0);
        let start = millis.saturating_mul(1_000_000);
        let took = u64::try_from(span.took.as_nanos()).unwrap_or(u64::MAX);
        Wired {
            trace_id: span.parent.trace_id.to_bytes().to_vec(),
            span_id: span.id.to_bytes().to_vec(),
            parent_span_id: span.parent.span_id.to_bytes().to_vec(),
            flags: HAS_REMOTE_PARENT | u32::from(span.parent.is_sampled),
            name: span.decision.name().to_owned(),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: start,
            end_time_unix_nano: start.saturating_add(took),
            attributes: attributes(span),
            status: is_error(span).then(|| Status {
                code: StatusCode::Error.into(),
                message: span.code.unwrap_or_default().to_owned(),
            }),
            ..Wired::default()
        }
    }
}

impl Decision {
    const fn name(self) -> &'static str {
        match self {
            Decision::Admitted => "fenced write admitted",
            Decision::Refused => "request refused",
            Decision::Observed => "request observed",
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Decision::Admitted => "admitted",
            Decision::Refused => "refused",
            Decision::Observed => "observed",
        }
    }
}

/// A refusal is the gateway's work well done; what failed on the server's side is none.
fn is_error(span: &Span) -> bool {
    span.status.is_none_or(|status| status >= 500) && span.decision != Decision::Observed
}

fn attributes(span: &Span) -> Vec<KeyValue> {
    let mut attributes = vec![
        text("fencegate.decision", span.decision.as_str()),
        text("fencegate.outcome", span.outcome),
        text("http.request.method", &span.method),
    ];
    attributes.extend(span.route.as_ref().map(|route| text("fencegate.route", route)));
    attributes.extend(span.resource.as_ref().map(|name| text("fencegate.resource", name)));
    attributes.extend(span.code.map(|code| text("fencegate.code", code)));
    // As texts, as everywhere: readers may round large numbers.
    attributes.extend(span.token.map(|token| text("fencegate.token", &token.to_string())));
    attributes.extend(span.mark.map(|mark| text("fencegate.mark", &mark.to_string())));
    attributes.extend(
        span.status.map(|status| {
            attribute("http.response.status_code", Value::IntValue(i64::from(status)))
        }),
    );
    attributes
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
