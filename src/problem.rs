//! What Fencegate answers by itself: every code, its status, and whether the write may have
//! happened.
//!
//! This is the only map from what went wrong to HTTP. It has no catch-all arm on purpose: a new
//! code must decide its status, its outcome and whether a retry can help.

use http::StatusCode;
use serde::Serialize;

use crate::fence::Token;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The `code` of a problem document.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The code as it stands on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// The request is not one that this listener takes (bad JSON, a bad field, a bad parameter).
    InvalidRequest = "invalid_request",
    /// It is not known who asks.
    Unauthenticated = "unauthenticated",
    /// Whoever asks may not do this.
    Forbidden = "forbidden",
    /// The token header is not a bare decimal in range.
    MalformedFencingToken = "malformed_fencing_token",
    /// The token header is repeated, contradicts its twin, or is named in `Connection`.
    AmbiguousFencingToken = "ambiguous_fencing_token",
    /// The request target has more than one reading, or names no valid resource.
    UnresolvableResource = "unresolvable_resource",
    /// The token is above the mark, but the coordinator does not name it as the holder's.
    FencingTokenNotHeld = "fencing_token_not_held",
    /// The lease is somebody else's.
    OwnerMismatch = "owner_mismatch",
    /// No route matches the path.
    NoRoute = "no_route",
    /// There is no such lease (any more).
    LeaseNotFound = "lease_not_found",
    /// There is no fence for this resource yet.
    FenceNotFound = "fence_not_found",
    /// The method is never passed on.
    MethodNotAllowed = "method_not_allowed",
    /// The request's body did not arrive in time.
    RequestTimeout = "request_timeout",
    /// The lease is held by another owner.
    LeaseHeld = "lease_held",
    /// The lease has expired or belongs to somebody else.
    LeaseLost = "lease_lost",
    /// The mark cannot be lowered.
    MarkNotRaised = "mark_not_raised",
    /// There is no other history of the coordinator to adopt.
    CoordinatorUnchanged = "coordinator_unchanged",
    /// A newer token has written already.
    StaleFencingToken = "stale_fencing_token",
    /// The body is larger than the route's limit.
    BodyTooLarge = "body_too_large",
    /// The request's head is larger than the limit.
    HeadTooLarge = "head_too_large",
    /// A fenced write came without a token.
    FencingTokenRequired = "fencing_token_required",
    /// No byte of the request reached the upstream.
    UpstreamUnreachable = "upstream_unreachable",
    /// The upstream broke off after the request was sent at least in part.
    UpstreamOutcomeUnknown = "upstream_outcome_unknown",
    /// The coordinator did not answer, so a new token cannot be confirmed.
    CoordinatorUnavailable = "coordinator_unavailable",
    /// The coordinator has another history than before, so a new token cannot be compared with the mark.
    CoordinatorChanged = "coordinator_changed",
    /// The fence store did not confirm the raise.
    FenceStoreUnavailable = "fence_store_unavailable",
    /// Older writes are still under way.
    FenceDraining = "fence_draining",
    /// A limit on waiting requests is reached, or the gateway is shutting down.
    Overloaded = "overloaded",
    /// The upstream did not answer within its timeout.
    UpstreamTimeout = "upstream_timeout",
}

/// Whether the write may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemOutcome {
    /// No byte of it went upstream.
    NotForwarded,
    /// It was sent at least in part; it may or may not take effect.
    Unknown,
}

impl Code {
    /// The HTTP status of the answer.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        use Code as C;
        match self {
            C::InvalidRequest
            | C::MalformedFencingToken
            | C::AmbiguousFencingToken
            | C::UnresolvableResource => StatusCode::BAD_REQUEST,
            C::Unauthenticated => StatusCode::UNAUTHORIZED,
            C::Forbidden | C::FencingTokenNotHeld | C::OwnerMismatch => StatusCode::FORBIDDEN,
            C::NoRoute | C::LeaseNotFound | C::FenceNotFound => StatusCode::NOT_FOUND,
            C::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            C::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            C::LeaseHeld | C::LeaseLost | C::MarkNotRaised | C::CoordinatorUnchanged => {
                StatusCode::CONFLICT
            }
            C::StaleFencingToken => StatusCode::PRECONDITION_FAILED,
            C::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            C::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            C::FencingTokenRequired => StatusCode::PRECONDITION_REQUIRED,
            C::UpstreamUnreachable | C::UpstreamOutcomeUnknown => StatusCode::BAD_GATEWAY,
            C::CoordinatorUnavailable
            | C::CoordinatorChanged
            | C::FenceStoreUnavailable
            | C::FenceDraining
            | C::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            C::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Whether the proxy listener can answer it; the others belong to the lease and admin
    /// listeners alone.
    #[must_use]
    pub const fn is_of_the_proxy(self) -> bool {
        use Code as C;
        !matches!(
            self,
            C::Unauthenticated
                | C::Forbidden
                | C::OwnerMismatch
                | C::LeaseNotFound
                | C::FenceNotFound
                | C::LeaseHeld
                | C::LeaseLost
                | C::MarkNotRaised
                | C::CoordinatorUnchanged
        )
    }

    /// Whether sending the same request again can ever help.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        use Code as C;
        match self {
            C::RequestTimeout
            | C::LeaseHeld
            | C::UpstreamUnreachable
            | C::CoordinatorUnavailable
            | C::CoordinatorChanged
            | C::FenceStoreUnavailable
            | C::FenceDraining
            | C::Overloaded => true,
            C::InvalidRequest
            | C::Unauthenticated
            | C::Forbidden
            | C::MalformedFencingToken
            | C::AmbiguousFencingToken
            | C::UnresolvableResource
            | C::FencingTokenNotHeld
            | C::OwnerMismatch
            | C::NoRoute
            | C::LeaseNotFound
            | C::FenceNotFound
            | C::MethodNotAllowed
            | C::LeaseLost
            | C::MarkNotRaised
            | C::CoordinatorUnchanged
            | C::StaleFencingToken
            | C::BodyTooLarge
            | C::HeadTooLarge
            | C::FencingTokenRequired
            | C::UpstreamOutcomeUnknown
            | C::UpstreamTimeout => false,
        }
    }
}

/// An RFC 9457 problem document.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// `about:blank`: the code says it all.
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    code: &'static str,
    /// What happened, and what to do about it, in words.
    pub detail: String,
    /// Whether the write may have happened.
    pub outcome: ProblemOutcome,
    /// The resource, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The token that the request carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presented_token: Option<Token>,
    /// The fence's high-water mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest_token: Option<Token>,
    /// The present holder of a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<serde_json::Value>,
    /// Finds this decision in the logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    #[serde(skip)]
    problem_code: Code,
    /// Seconds for `Retry-After`.
    #[serde(skip)]
    pub retry_after_seconds: Option<u64>,
}

impl Problem {
    /// The media type of the document.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// A problem that happened before anything was sent upstream.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank",
            title: code.status().canonical_reason().unwrap_or("Error"),
            status: code.status().as_u16(),
            code: code.as_str(),
            detail: detail.into(),
            outcome: match code {
                Code::UpstreamOutcomeUnknown | Code::UpstreamTimeout => ProblemOutcome::Unknown,
                _ => ProblemOutcome::NotForwarded,
            },
            resource: None,
            presented_token: None,
            highest_token: None,
            holder: None,
            trace_id: None,
            problem_code: code,
            retry_after_seconds: (code.status() == StatusCode::SERVICE_UNAVAILABLE).then_some(1),
        }
    }

    /// The same answer with another status than the code's own: a worker's stamping proxy says
    /// `lease_lost` of itself (503), not of a conflict in the request (409).
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Problem {
        self.title = status.canonical_reason().unwrap_or("Error");
        self.status = status.as_u16();
        self
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.problem_code
    }

    /// The answer: the document, `Retry-After`, and `x-should-retry: false` where a retry can
    /// never help.
    #[must_use]
    pub fn to_response(&self) -> http::Response<bytes::Bytes> {
        let body = serde_json::to_vec(self).expect("a struct of strings serialises");
        let mut answer = http::Response::builder()
            .status(self.status)
            .header(http::header::CONTENT_TYPE, Problem::MEDIA_TYPE)
            .header(http::header::CACHE_CONTROL, "no-store");
        if let Some(seconds) = self.retry_after_seconds {
            answer = answer.header(http::header::RETRY_AFTER, seconds);
        }
        if self.problem_code == Code::Unauthenticated {
            answer = answer.header(http::header::WWW_AUTHENTICATE, "Bearer realm=\"fencegate\"");
        }
        if !self.problem_code.is_retryable() {
            answer = answer.header("x-should-retry", "false");
        }
        answer.body(body.into()).expect("constant names and numbers make a valid head")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_http_has_every_code_with_its_status() {
        let page = include_str!("../docs/http.md");
        for code in Code::ALL {
            let row = format!("| {} | `{}` |", code.status().as_u16(), code.as_str());
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_problem_says_what_a_retry_can_do() {
        let stale = Problem::new(Code::StaleFencingToken, "late").to_response();
        assert_eq!(stale.headers()["x-should-retry"], "false");
        assert!(!stale.headers().contains_key("retry-after"));
        let draining = Problem::new(Code::FenceDraining, "wait").to_response();
        assert_eq!(draining.headers()["retry-after"], "1");
        assert!(!draining.headers().contains_key("x-should-retry"));
    }
}
