//! What is counted, logged and recorded of a request.

use std::fmt::Display;
use std::sync::Arc;

use http::HeaderMap;

use super::{Context, Worker};
use crate::fence::Resource;
use crate::gateway::refusal::Refusal;
use crate::problem::{Code, Problem};
use crate::spans::{Decision, Open, Span};

impl Worker {
    /// The span of an admitted write, which goes on with it; what the upstream records is below it.
    pub(super) fn admitted(
        &self,
        context: &mut Context<'_>,
        headers: &mut HeaderMap,
    ) -> Option<Box<Open>> {
        let spans = self.spans.as_ref()?;
        let (parent, started) = context.traced.take()?;
        let mut span = spans.begin(parent, started, Decision::Admitted);
        span.set(|span| {
            context.describe(span);
            span.mark = context.token;
        });
        span.adopt(headers);
        Some(Box::new(span))
    }

    /// The span of a refusal. None of a read that failed: about that nothing was decided.
    pub(super) fn trace(&self, decision: Decision, refusal: &Refusal, context: &mut Context<'_>) {
        let Some(spans) = &self.spans else { return };
        let Some((parent, started)) = context.traced.take() else { return };
        if refusal.is_failure() {
            return;
        }
        let code = refusal.code();
        spans.begin(parent, started, decision).set(|span| {
            context.describe(span);
            span.mark = refusal.highest_token();
            span.code = Some(code.as_str());
            (span.outcome, span.status) = match decision {
                Decision::Observed => ("forwarded", None),
                _ if refusal.was_sent() => ("unknown", Some(code.status().as_u16())),
                _ => ("not_forwarded", Some(code.status().as_u16())),
            };
        });
    }

    pub(super) fn count(&self, event: &'static str, refusal: &Refusal, context: &Context<'_>) {
        let code = refusal.code();
        if let Refusal::Limited(limited) = refusal {
            self.limit_hits.hit(limited.limit);
        }
        context.route.map_or(&self.routes.unmatched, |route| &route.metrics).reject(
            code,
            refusal.late_by(),
            context.trace_id,
        );
        if matches!(refusal, Refusal::Limited(_)) && !self.is_to_be_logged() {
            return;
        }
        tracing::warn!(
            code = code.as_str(),
            detail = %refusal,
            route = context.route.map(|route| &*route.name),
            method = context.method.as_str(),
            // Only what can name one: what a client made up instead may be as long as its head.
            resource = context.resource.filter(|name| Resource::check(name).is_ok()),
            // As text: a reader of JSON may round large numbers.
            token = context.token.map(display),
            mark = refusal.highest_token().map(display),
            late_ms = refusal.late_by().map(|late_by| late_by.as_millis()),
            trace_id = %context.trace_id,
            "{event}"
        );
    }

    /// Counts and logs a head that is refused before it is a request, and puts it into words.
    pub(in crate::gateway) fn refuse_head(&self, code: Code, detail: &dyn Display) -> Problem {
        let trace_id = self.traces.next();
        self.routes.unmatched.reject(code, None, trace_id);
        tracing::warn!(code = code.as_str(), %detail, %trace_id, "head refused");
        let mut problem = Problem::new(code, detail.to_string());
        problem.trace_id = Some(trace_id.to_string());
        problem
    }
}

impl Context<'_> {
    /// Says in a span what is known of the request.
    fn describe(&self, span: &mut Span) {
        span.method = self.method.to_string();
        span.route = self.route.map(|route| Arc::clone(&route.name));
        // Only what can name one: what a client made up instead may be as long as its head.
        let resource = self.resource.filter(|name| Resource::check(name).is_ok());
        span.resource = resource.map(ToOwned::to_owned);
        span.token = self.token;
    }
}
