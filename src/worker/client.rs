//! The lease API's client: one method per operation, one error for all of them.
//!
//! Every request is bounded in time and its answer in size. Connections are not reused: a renewal
//! is rare, and one that is sent on a connection which died unseen would cost part of the TTL.
//! Deliberately absent: retries (who retries must know a deadline; see
//! [`HeldLease`](super::HeldLease)) and proxies from the environment.

use std::fmt::Display;
use std::time::Duration;

use http::header::AUTHORIZATION;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::token_file::TokenFile;
use super::wire::{AcquireBody, Holder, Lease, LeasePage, ProblemBody, RenewBody};
use crate::fence::{Owner, Resource, Token};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer may take that the server need not wait for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A waiting acquisition is silent for long: probes tell a patient server from a dead one.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What stands for itself in a path segment and in a query's value (RFC 3986, unreserved).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A client of the lease API. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LeaseClient {
    http: reqwest::Client,
    base: String,
    token: Option<TokenFile>,
}

/// Why the lease API did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Another owner has the lease, and kept it during the wait.
    #[error(
        "the lease is held by {:?} with token {} until {}",
        holder.owner, holder.token, holder.expires_at
    )]
    Held {
        /// Who has it.
        holder: Holder,
    },
    /// The lease is over, or was never the caller's. It does not come back: acquire a new one.
    #[error("the lease is lost: {detail}")]
    Lost {
        /// The server's words.
        detail: String,
    },
    /// The lease is another owner's, or has another token.
    #[error("the lease is not this owner's: {detail}")]
    OwnerMismatch {
        /// The server's words.
        detail: String,
    },
    /// There is no such lease (any more).
    #[error("there is no such lease: {detail}")]
    NotFound {
        /// The server's words.
        detail: String,
    },
    /// The coordinator did not answer. An acquisition, a renewal or a release may have happened
    /// all the same, unless `sent` is false; every one of them can be tried again.
    #[error("the coordinator does not answer: {reason}")]
    Unreachable {
        /// Whether the request may have reached the server.
        sent: bool,
        /// What went wrong.
        reason: String,
    },
    /// The server refused the request; the same request will be refused again.
    #[error("the lease API refused the request with {code}: {detail}")]
    Refused {
        /// The problem document's `code`, or the status of an answer without one.
        code: String,
        /// The server's words.
        detail: String,
    },
}

impl LeaseError {
    /// The code of the lease API's problem document that says the same.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            LeaseError::Held { .. } => "lease_held",
            LeaseError::Lost { .. } => "lease_lost",
            LeaseError::OwnerMismatch { .. } => "owner_mismatch",
            LeaseError::NotFound { .. } => "lease_not_found",
            LeaseError::Unreachable { .. } => "coordinator_unavailable",
            LeaseError::Refused { code, .. } => code,
        }
    }
}

/// A text that is not the address of a lease API.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{url:?} is not the address of a lease API ({why}); give one such as http://127.0.0.1:8081"
)]
pub struct InvalidLeaseUrl {
    url: String,
    why: String,
}

impl LeaseClient {
    /// A client of the lease API at `base`, for example `http://127.0.0.1:8081`.
    ///
    /// # Errors
    /// `base` is not an `http://` URL without query and fragment.
    pub fn new(base: &str) -> Result<LeaseClient, InvalidLeaseUrl> {
        let invalid = |why: String| InvalidLeaseUrl { url: base.to_owned(), why };
        let base = base_url(base).map_err(invalid)?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(PROBE_EVERY)
            .tcp_keepalive_interval(PROBE_EVERY)
            .tcp_keepalive_retries(3)
            .build()
            .map_err(|error| invalid(chain(&error)))?;
        Ok(LeaseClient { http, base, token: None })
    }

    /// The same, known by a bearer token.
    #[must_use]
    pub fn with_token(self, token: TokenFile) -> LeaseClient {
        LeaseClient { token: Some(token), ..self }
    }

    /// Acquires the lease, waiting up to `wait` for a holder to let go. Dropping the future gives
    /// the place in the queue up.
    ///
    /// # Errors
    /// [`LeaseError::Held`], [`LeaseError::Unreachable`] or [`LeaseError::Refused`].
    pub async fn acquire(
        &self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Lease, LeaseError> {
        let body = AcquireBody { owner, ttl_ms: millis(ttl), wait_ms: millis(wait) };
        let request = self.request(Method::POST, &self.of(resource, "")?);
        let request = request.body(json(&body)).timeout(ANSWER_TIMEOUT.saturating_add(wait));
        read(request).await
    }

    /// Prolongs the lease to `ttl` from when the server got the request; `None`: to its own TTL.
    ///
    /// # Errors
    /// [`LeaseError::Lost`], [`LeaseError::Unreachable`] or [`LeaseError::Refused`].
    pub async fn renew(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Lease, LeaseError> {
        let body = RenewBody { owner, token, ttl_ms: ttl.map(millis) };
        let request = self.request(Method::POST, &self.of(resource, "/renew")?);
        read(request.body(json(&body))).await
    }

    /// Ends the lease.
    ///
    /// # Errors
    /// [`LeaseError::OwnerMismatch`], [`LeaseError::NotFound`], [`LeaseError::Unreachable`] or
    /// [`LeaseError::Refused`].
    pub async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Token,
    ) -> Result<(), LeaseError> {
        let query = format!("?owner={}&token={token}", escape(owner.as_str()));
        answer(self.request(Method::DELETE, &self.of(resource, &query)?)).await.map(drop)
    }

    /// The resource's live lease.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`], [`LeaseError::Unreachable`] or [`LeaseError::Refused`].
    pub async fn show(&self, resource: &Resource) -> Result<Lease, LeaseError> {
        read(self.request(Method::GET, &self.of(resource, "")?)).await
    }

    /// Live leases in the order of their resources, after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`LeaseError::Unreachable`] or [`LeaseError::Refused`].
    pub async fn list(
        &self,
        after: Option<&Resource>,
        limit: u32,
    ) -> Result<LeasePage, LeaseError> {
        let after = after.map(|after| format!("&after={}", escape(after.as_str())));
        let path = format!("/v1/leases?limit={limit}{}", after.unwrap_or_default());
        read(self.request(Method::GET, &path)).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .header("content-type", "application/json")
            .timeout(ANSWER_TIMEOUT);
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, token.field()),
            None => request,
        }
    }

    fn of(&self, resource: &Resource, rest: &str) -> Result<String, LeaseError> {
        let segment = path_segment(resource).map_err(|detail| LeaseError::Refused {
            code: "unresolvable_resource".into(),
            detail: detail.into(),
        })?;
        Ok(format!("/v1/leases/{segment}{rest}"))
    }
}

/// The address of one of the gateway's APIs without a slash at its end, or what is wrong with it.
pub(crate) fn base_url(text: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(text).map_err(|error| error.to_string())?;
    if url.scheme() != "http" {
        return Err("it does not begin with http://".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment".to_owned());
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// A resource as one segment of a path, or why it cannot be one.
pub(crate) fn path_segment(resource: &Resource) -> Result<impl Display, &'static str> {
    // A URL parser takes these for steps through the path, escaped or not.
    if matches!(resource.as_str(), "." | "..") {
        return Err("a resource named . or .. cannot stand in a URL; give it another name");
    }
    Ok(escape(resource.as_str()))
}

/// Escapes what does not stand for itself in a path segment or a query's value.
pub(crate) fn escape(text: &str) -> percent_encoding::PercentEncode<'_> {
    utf8_percent_encode(text, ESCAPED)
}

fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("a struct of texts and numbers serialises")
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

async fn read<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, LeaseError> {
    let body = answer(request).await?;
    serde_json::from_slice(&body).map_err(|error| LeaseError::Refused {
        code: "unreadable_answer".into(),
        detail: format!("{error}; is this the address of a lease API?"),
    })
}

/// Sends the request; a success's body, or what the refusal means.
async fn answer(request: RequestBuilder) -> Result<Vec<u8>, LeaseError> {
    let mut response = request.send().await.map_err(|error| unreachable(&error))?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&error))? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(LeaseError::Refused {
                code: "unreadable_answer".into(),
                detail: format!("the answer is larger than {ANSWER_BYTES_MAX} bytes"),
            });
        }
        body.extend_from_slice(&chunk);
    }
    match response.status() {
        status if status.is_success() => Ok(body),
        status => Err(refusal(status, &body)),
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> LeaseError {
    let Ok(ProblemBody { code, detail, holder }) = serde_json::from_slice(body) else {
        let detail = "the answer has no problem document; is this the address of a lease API?";
        return LeaseError::Refused { code: status.to_string(), detail: detail.into() };
    };
    match (code.as_str(), holder) {
        ("lease_held", Some(holder)) => LeaseError::Held { holder },
        ("lease_lost", _) => LeaseError::Lost { detail },
        ("owner_mismatch", _) => LeaseError::OwnerMismatch { detail },
        ("lease_not_found", _) => LeaseError::NotFound { detail },
        _ if status == StatusCode::SERVICE_UNAVAILABLE => {
            LeaseError::Unreachable { sent: true, reason: format!("{code}: {detail}") }
        }
        _ => LeaseError::Refused { code, detail },
    }
}

fn unreachable(error: &reqwest::Error) -> LeaseError {
    LeaseError::Unreachable { sent: !error.is_connect(), reason: chain(error) }
}

/// An error and its sources in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
