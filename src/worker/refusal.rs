//! What the gateway says when it does not pass a write on, as a value.
//!
//! Invariant: an answer is taken for the gateway's only if all of it fits, since the API behind it
//! may answer with problem documents of its own. Deliberately absent: retries. When one can help
//! is said here; whether the work is still worth it, the caller knows.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

use crate::fence::Token;
use crate::problem::{Code, Problem, ProblemOutcome};

/// Where the gateway names no time.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A write that was not answered by the API but refused, or given up, by the gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
#[non_exhaustive]
pub struct Refusal {
    /// What it was for: one variant for each code that the gateway has.
    pub code: Code,
    /// What happened, and what to do about it, in words.
    pub detail: String,
    /// Whether the write may have happened.
    pub outcome: ProblemOutcome,
    /// The resource, where it is known.
    pub resource: Option<String>,
    /// The token that the write carried.
    pub presented_token: Option<Token>,
    /// The highest token that was accepted, where it matters.
    pub highest_token: Option<Token>,
    /// Finds the decision in the gateway's log.
    pub trace_id: Option<String>,
    retry_after: Option<Duration>,
}

/// The document; fields that a newer gateway adds are passed over.
#[derive(Deserialize)]
struct Document {
    code: String,
    detail: String,
    outcome: String,
    resource: Option<String>,
    presented_token: Option<Token>,
    highest_token: Option<Token>,
    trace_id: Option<String>,
}

impl Refusal {
    /// Whether an answer with this head can be the gateway's own, so that its body is worth
    /// reading.
    #[must_use]
    pub fn is_possible(status: StatusCode, headers: &HeaderMap) -> bool {
        let kind = headers.get(header::CONTENT_TYPE);
        (status.is_client_error() || status.is_server_error())
            && kind.is_some_and(|kind| kind.as_bytes() == Problem::MEDIA_TYPE.as_bytes())
    }

    /// Reads an answer; `None`: it is the API's.
    #[must_use]
    pub fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<Refusal> {
        if !Refusal::is_possible(status, headers) {
            return None;
        }
        let document: Document = serde_json::from_slice(body).ok()?;
        let code = Code::ALL.iter().copied().find(|code| code.as_str() == document.code)?;
        // The stamping proxy of `fencegate run` says so of itself, with a status of its own.
        let is_lease_lost = code == Code::LeaseLost && status == StatusCode::SERVICE_UNAVAILABLE;
        if !(is_lease_lost || (code.is_of_the_proxy() && code.status() == status)) {
            return None;
        }
        let outcome = match document.outcome.as_str() {
            "not_forwarded" => ProblemOutcome::NotForwarded,
            "unknown" => ProblemOutcome::Unknown,
            _ => return None,
        };
        let named = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let named = named.and_then(|value| value.parse().ok()).map(Duration::from_secs);
        Some(Refusal {
            code,
            detail: document.detail,
            outcome,
            resource: document.resource,
            presented_token: document.presented_token,
            highest_token: document.highest_token,
            trace_id: document.trace_id,
            retry_after: code.is_retryable().then(|| named.unwrap_or(RETRY_AFTER)),
        })
    }

    /// After which time the same write, with the same token, may be sent again; `None`: never. It
    /// is never where the write may have happened, and never for a stale token.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            ProblemOutcome::NotForwarded => self.retry_after,
            ProblemOutcome::Unknown => None,
        }
    }

    /// Whether all work under this lease has to stop: the token is not, or no longer, that of the
    /// resource's holder.
    #[must_use]
    pub const fn ends_the_work(&self) -> bool {
        matches!(self.code, Code::StaleFencingToken | Code::FencingTokenNotHeld | Code::LeaseLost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(problem: &Problem) -> Option<Refusal> {
        let answer = problem.to_response();
        Refusal::read(answer.status(), answer.headers(), answer.body())
    }

    #[test]
    fn every_refusal_of_the_proxy_is_read_as_what_it_is() {
        for &code in Code::ALL.iter().filter(|code| code.is_of_the_proxy()) {
            let mut problem = Problem::new(code, "so it is");
            problem.highest_token = Token::new(43);
            let refusal = read(&problem).expect("it is the gateway's");
            assert_eq!((refusal.code, refusal.outcome), (code, problem.outcome));
            assert_eq!(
                (refusal.detail.as_str(), refusal.highest_token),
                ("so it is", Token::new(43))
            );
            assert_eq!(refusal.retry_after().is_some(), code.is_retryable(), "{code:?}");
        }
    }

    #[test]
    fn stale_is_final_and_what_may_have_happened_is_not_retried() {
        let stale = read(&Problem::new(Code::StaleFencingToken, "late")).unwrap();
        assert!(stale.ends_the_work() && stale.retry_after().is_none());
        let mut problem = Problem::new(Code::RequestTimeout, "slow");
        problem.outcome = ProblemOutcome::Unknown;
        assert_eq!(read(&problem).unwrap().retry_after(), None);
        let mut problem = Problem::new(Code::FenceDraining, "wait");
        problem.retry_after_seconds = Some(7);
        let draining = read(&problem).unwrap();
        assert_eq!(draining.retry_after(), Some(Duration::from_secs(7)));
        assert!(!draining.ends_the_work());
    }

    #[test]
    fn problems_of_the_api_are_not_taken_for_the_gateways() {
        let answer = Problem::new(Code::StaleFencingToken, "late").to_response();
        let (status, headers) = (answer.status(), answer.headers());
        let body = |text: &str| Refusal::read(status, headers, text.as_bytes());
        assert!(Refusal::read(StatusCode::CONFLICT, headers, answer.body()).is_none());
        assert!(Refusal::read(status, &HeaderMap::new(), answer.body()).is_none());
        assert!(body("{}").is_none() && body("[]").is_none() && body("").is_none());
        let of_the_api = r#"{"code":"stale","detail":"x","outcome":"not_forwarded"}"#;
        assert!(body(of_the_api).is_none());
        let lease = Problem::new(Code::LeaseLost, "of the lease listener").to_response();
        assert!(Refusal::read(lease.status(), lease.headers(), lease.body()).is_none());
    }
}
