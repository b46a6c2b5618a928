//! Writes under a lease with `reqwest`: the token is put on, and refusals become errors.
//!
//! Invariant: nothing is sent once the lease counts as lost. Deliberately absent: retries, as in
//! [`Refusal`]; and cutting a write that is under way when the lease is lost: it may have
//! happened, and its answer says more than a broken connection.

use std::time::Duration;

use reqwest::{Request, Response, ResponseBuilderExt};

use super::held::LeaseView;
use super::refusal::Refusal;
use super::token_header::stamp;
use crate::problem::ProblemOutcome;

/// The gateway's own answers are smaller; larger ones are the API's.
const REFUSAL_BYTES_MAX: u64 = 64 * 1024;

/// Sends writes under one lease. Cheap to clone. Made by [`HeldLease::writes`](super::HeldLease::writes).
#[derive(Clone, Debug)]
pub struct Writes {
    http: reqwest::Client,
    lease: LeaseView,
}

/// Why a write was not answered by the API.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The lease counts as lost; nothing was sent. Stop the work.
    #[error("nothing was sent, since the lease is lost")]
    LeaseLost,
    /// The gateway answered instead of the API.
    #[error("the gateway did not pass the write on, or does not know what became of it")]
    Refused(#[source] Box<Refusal>),
    /// There was no answer.
    #[error("no answer came from the gateway")]
    NoAnswer(#[source] reqwest::Error),
}

impl Writes {
    pub(super) const fn new(http: reqwest::Client, lease: LeaseView) -> Writes {
        Writes { http, lease }
    }

    /// Puts the token on the request and sends it. Every answer of the API is `Ok`, whatever its
    /// status.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn send(&self, mut request: Request) -> Result<Response, WriteError> {
        if !self.lease.is_live() {
            return Err(WriteError::LeaseLost);
        }
        stamp(request.headers_mut(), self.lease.token());
        let answer = self.http.execute(request).await.map_err(WriteError::NoAnswer)?;
        let is_short = answer.content_length().is_some_and(|length| length <= REFUSAL_BYTES_MAX);
        if !(is_short && Refusal::is_possible(answer.status(), answer.headers())) {
            return Ok(answer);
        }
        let (status, version, url) = (answer.status(), answer.version(), answer.url().clone());
        let headers = answer.headers().clone();
        let body = answer.bytes().await.map_err(WriteError::NoAnswer)?;
        if let Some(refusal) = Refusal::read(status, &headers, &body) {
            return Err(WriteError::Refused(Box::new(refusal)));
        }
        let mut unread = http::Response::builder().status(status).version(version).url(url);
        if let Some(all) = unread.headers_mut() {
            *all = headers;
        }
        Ok(unread.body(body).expect("its parts were those of an answer").into())
    }
}

impl WriteError {
    /// The gateway's refusal, if that is what it is.
    #[must_use]
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            WriteError::Refused(refusal) => Some(refusal),
            WriteError::LeaseLost | WriteError::NoAnswer(_) => None,
        }
    }

    /// Whether the write may have happened.
    #[must_use]
    pub fn outcome(&self) -> ProblemOutcome {
        match self {
            WriteError::LeaseLost => ProblemOutcome::NotForwarded,
            WriteError::Refused(refusal) => refusal.outcome,
            WriteError::NoAnswer(error) if error.is_connect() || error.is_builder() => {
                ProblemOutcome::NotForwarded
            }
            WriteError::NoAnswer(_) => ProblemOutcome::Unknown,
        }
    }

    /// After which time the same write may be sent again under the same lease; `None`: never.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            WriteError::LeaseLost => None,
            WriteError::Refused(refusal) => refusal.retry_after(),
            WriteError::NoAnswer(error) => error.is_connect().then_some(Duration::from_secs(1)),
        }
    }

    /// Whether all work under this lease has to stop.
    #[must_use]
    pub const fn ends_the_work(&self) -> bool {
        match self {
            WriteError::LeaseLost => true,
            WriteError::Refused(refusal) => refusal.ends_the_work(),
            WriteError::NoAnswer(_) => false,
        }
    }
}
