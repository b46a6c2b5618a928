//! Everything that the gateway answers by itself, and how it is said.

use std::time::Duration;

use super::load::Limited;
use crate::coordinator::CoordinatorError;
use crate::fence::{InvalidToken, Resource, Token};
use crate::fences::Refused;
use crate::problem::{Code, Problem, ProblemOutcome};
use crate::trace::TraceId;

/// Why a request was not answered by the upstream.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{0}")]
    InvalidRequest(&'static str),
    #[error("{0}")]
    MalformedToken(InvalidToken),
    #[error("{0}")]
    AmbiguousToken(&'static str),
    #[error("{0}")]
    Unresolvable(String),
    #[error("no route matches this path; requests are only passed on where a route says so")]
    NoRoute,
    #[error("this method is never passed on")]
    MethodNotAllowed,
    #[error("this write needs the token of a lease: send Fencing-Token: N")]
    TokenRequired,
    #[error(transparent)]
    Admission(#[from] Refused),
    #[error("{0}; nothing was forwarded, send it again later")]
    Limited(#[from] Limited),
    #[error("the body is larger than this route allows ({limit_bytes} bytes)")]
    BodyTooLarge { limit_bytes: u64, sent: bool },
    #[error("the request's body did not arrive in time; nothing was forwarded")]
    RequestTimeout,
    #[error("the request's body cannot be read to its end: {0}")]
    BodyBroken(String),
    #[error("the upstream cannot be reached: {0}; no byte of the request was sent")]
    UpstreamUnreachable(String),
    #[error("{0}; the request was sent at least in part and may or may not have taken effect")]
    OutcomeUnknown(String),
    #[error(
        "the upstream did not answer in time; the request was sent and may or may not have taken \
         effect"
    )]
    UpstreamTimeout,
}

impl Refusal {
    pub(super) const fn code(&self) -> Code {
        match self {
            Refusal::InvalidRequest(_) | Refusal::BodyBroken(_) => Code::InvalidRequest,
            Refusal::MalformedToken(_) => Code::MalformedFencingToken,
            Refusal::AmbiguousToken(_) => Code::AmbiguousFencingToken,
            Refusal::Unresolvable(_) => Code::UnresolvableResource,
            Refusal::NoRoute => Code::NoRoute,
            Refusal::MethodNotAllowed => Code::MethodNotAllowed,
            Refusal::TokenRequired => Code::FencingTokenRequired,
            Refusal::Admission(Refused::Stale { .. }) => Code::StaleFencingToken,
            Refusal::Admission(Refused::NotHeld { .. }) => Code::FencingTokenNotHeld,
            Refusal::Admission(Refused::Draining) => Code::FenceDraining,
            Refusal::Limited(_)
            | Refusal::Admission(Refused::Overloaded | Refused::ShuttingDown) => Code::Overloaded,
            Refusal::Admission(Refused::Coordinator(CoordinatorError::Unavailable(_))) => {
                Code::CoordinatorUnavailable
            }
            Refusal::Admission(Refused::Coordinator(CoordinatorError::Changed(_))) => {
                Code::CoordinatorChanged
            }
            Refusal::Admission(Refused::Store(_)) => Code::FenceStoreUnavailable,
            Refusal::BodyTooLarge { .. } => Code::BodyTooLarge,
            Refusal::RequestTimeout => Code::RequestTimeout,
            Refusal::UpstreamUnreachable(_) => Code::UpstreamUnreachable,
            Refusal::OutcomeUnknown(_) => Code::UpstreamOutcomeUnknown,
            Refusal::UpstreamTimeout => Code::UpstreamTimeout,
        }
    }

    /// What the log calls it: nobody refused what the upstream failed to answer.
    pub(super) const fn event(&self) -> &'static str {
        if self.is_failure() { "request failed" } else { "request refused" }
    }

    /// Whether it is the upstream's failure, and no decision.
    pub(super) const fn is_failure(&self) -> bool {
        matches!(
            self,
            Refusal::UpstreamUnreachable(_) | Refusal::OutcomeUnknown(_) | Refusal::UpstreamTimeout
        )
    }

    /// Whether part of the request went upstream before it was refused.
    pub(super) const fn was_sent(&self) -> bool {
        matches!(self, Refusal::BodyTooLarge { sent: true, .. })
    }

    pub(super) fn problem(
        &self,
        resource: Option<&Resource>,
        token: Option<Token>,
        trace_id: TraceId,
    ) -> Problem {
        let mut problem = Problem::new(self.code(), self.to_string());
        problem.resource = resource.map(ToString::to_string);
        problem.presented_token = token;
        problem.highest_token = self.highest_token();
        problem.trace_id = Some(trace_id.to_string());
        if let Refusal::Limited(limited) = self {
            problem.retry_after_seconds = Some(limited.retry_after_seconds());
        }
        if self.was_sent() {
            problem.outcome = ProblemOutcome::Unknown;
        }
        problem
    }

    /// How late a write came that is stale.
    pub(super) const fn late_by(&self) -> Option<Duration> {
        match self {
            Refusal::Admission(Refused::Stale { late_by, .. }) => Some(*late_by),
            _ => None,
        }
    }

    pub(super) const fn highest_token(&self) -> Option<Token> {
        match self {
            Refusal::Admission(Refused::Stale { highest, .. }) => Some(*highest),
            Refusal::Admission(Refused::NotHeld { highest }) => *highest,
            _ => None,
        }
    }
}
