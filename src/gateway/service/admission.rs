//! What a write has to be admitted for, and the verdict.

use std::sync::Arc;

use http::request::Parts;

use super::{Context, Worker};
use crate::clock::Boottime;
use crate::fence::{Resource, Token};
use crate::fences::Permit;
use crate::gateway::destination;
use crate::gateway::head::Signs;
use crate::gateway::refusal::Refusal;
use crate::gateway::route::{Route, is_read};
use crate::spans::Decision;
use crate::trace::TraceId;

/// A fenced write before it is admitted.
pub(super) struct Claim<'a> {
    resource: &'a str,
    pub(super) token: Token,
}

impl Worker {
    /// Under `mode = "observe"` a refusal is only counted: `None`.
    pub(super) fn unless_observed<T>(
        &self,
        route: &Route,
        judged: Result<T, Refusal>,
        context: &mut Context<'_>,
    ) -> Result<Option<T>, Refusal> {
        match judged {
            Ok(value) => Ok(Some(value)),
            Err(refusal) if route.observe => {
                self.count("request observed", &refusal, context);
                self.trace(Decision::Observed, &refusal, context);
                Ok(None)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// What a write has to be admitted for; `None` if the route does not fence it.
    pub(super) fn claim<'a>(
        &self,
        route: &Arc<Route>,
        resource: &'a str,
        parts: &Parts,
        signs: &Signs,
    ) -> Result<Option<Claim<'a>>, Refusal> {
        let Parts { method, headers, .. } = parts;
        let is_fenced = |route: &Route| route.fences(method, signs.may_write());
        if signs.has_destination && (!is_read(method) || signs.may_write()) {
            destination::check(headers, &self.routes, route, resource, is_fenced)?;
        }
        if !is_fenced(route) {
            return Ok(None);
        }
        let token = signs.tokens.token()?.ok_or(Refusal::TokenRequired)?;
        Ok(Some(Claim { resource, token }))
    }

    /// Takes `now` to the moment of the decision, if that took time.
    pub(super) async fn admit(
        &self,
        route: &Route,
        claim: &Claim<'_>,
        now: &mut Boottime,
        trace_id: TraceId,
    ) -> Result<Permit, Refusal> {
        let started = *now;
        let Claim { resource, token } = *claim;
        let demand = &route.demand;
        if let Some(decided) =
            self.fences.admit_from_memory(resource, token, &demand.terms, started)
        {
            route.metrics.from_memory.count(decided.is_ok());
            return Ok(decided?);
        }
        let resource =
            Resource::new(resource).map_err(|error| Refusal::Unresolvable(error.to_string()))?;
        // Boxed, so that the usual write does not carry the room for it along.
        let decided = Box::pin(self.fences.admit(&resource, token, demand, trace_id)).await;
        *now = self.clock.now();
        route.metrics.after_waiting.count(decided.is_ok());
        route.metrics.admission.observe(now.since(started), trace_id);
        Ok(decided?)
    }
}
