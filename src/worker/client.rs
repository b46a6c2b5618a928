//! The lease API's client: one method per operation, one error for all of them.
//!
//! How a question gets to the gateway is that of `api`. Deliberately absent: retries; who retries
//! must know a deadline, see [`HeldLease`](super::HeldLease).

use std::fmt::Display;
use std::time::Duration;

use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::api::{ApiClient, NoAnswer, TlsFiles};
use super::token_file::TokenFile;
use super::wire::{AcquireBody, Holder, Lease, LeasePage, ProblemBody, RenewBody};
use crate::fence::{Owner, Resource, Token};

/// How long an answer may take that the server need not wait for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

const EXAMPLE: &str = "http://127.0.0.1:8081";

/// What stands for itself in a path segment and in a query's value (RFC 3986, unreserved).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A client of the lease API. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LeaseClient(ApiClient);

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

/// The lease API cannot be reached at such an address, or not with these files.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidLeaseUrl(String);

impl LeaseClient {
    /// A client of the lease API at `base`, for example `http://127.0.0.1:8081`. With `https://`
    /// the gateway's certificate has to be signed by an authority that the system trusts.
    ///
    /// # Errors
    /// `base` is no URL of HTTP without query and fragment.
    pub fn new(base: &str) -> Result<LeaseClient, InvalidLeaseUrl> {
        LeaseClient::with_files(base, &TlsFiles::default())
    }

    /// The same for `https://`, with authorities and a certificate of one's own. They are looked
    /// at before every request, so they can be renewed.
    ///
    /// # Errors
    /// `base` is not such a URL, or a file cannot be used.
    pub fn with_files(base: &str, files: &TlsFiles) -> Result<LeaseClient, InvalidLeaseUrl> {
        ApiClient::new(base, EXAMPLE, files).map(LeaseClient).map_err(InvalidLeaseUrl)
    }

    /// The same, known by a bearer token.
    #[must_use]
    pub fn with_token(self, token: TokenFile) -> LeaseClient {
        LeaseClient(self.0.with_token(token))
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
        let within = ANSWER_TIMEOUT.saturating_add(wait);
        read(self.ask(Method::POST, &of(resource, "")?, json(&body), within).await?)
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
        let path = of(resource, "/renew")?;
        read(self.ask(Method::POST, &path, json(&body), ANSWER_TIMEOUT).await?)
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
        let path = of(resource, &query)?;
        self.ask(Method::DELETE, &path, Vec::new(), ANSWER_TIMEOUT).await.map(drop)
    }

    /// The resource's live lease.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`], [`LeaseError::Unreachable`] or [`LeaseError::Refused`].
    pub async fn show(&self, resource: &Resource) -> Result<Lease, LeaseError> {
        read(self.ask(Method::GET, &of(resource, "")?, Vec::new(), ANSWER_TIMEOUT).await?)
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
        read(self.ask(Method::GET, &path, Vec::new(), ANSWER_TIMEOUT).await?)
    }

    /// The body of a success, or what the refusal means.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, LeaseError> {
        match self.0.ask(method, path, body, within).await {
            Ok((status, body)) if status.is_success() => Ok(body),
            Ok((status, body)) => Err(refusal(status, &body)),
            Err(error) => Err(unanswered(error)),
        }
    }
}

fn of(resource: &Resource, rest: &str) -> Result<String, LeaseError> {
    let segment = path_segment(resource).map_err(|detail| LeaseError::Refused {
        code: "unresolvable_resource".into(),
        detail: detail.into(),
    })?;
    Ok(format!("/v1/leases/{segment}{rest}"))
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

fn read<T: DeserializeOwned>(body: Vec<u8>) -> Result<T, LeaseError> {
    serde_json::from_slice(&body).map_err(|error| LeaseError::Refused {
        code: "unreadable_answer".into(),
        detail: format!("{error}; is this the address of a lease API?"),
    })
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

fn unanswered(error: NoAnswer) -> LeaseError {
    match error {
        NoAnswer::NotSent(reason) => LeaseError::Unreachable { sent: false, reason },
        NoAnswer::Broken(reason) => LeaseError::Unreachable { sent: true, reason },
        NoAnswer::TooLong => LeaseError::Refused {
            code: "unreadable_answer".into(),
            detail: "the answer is too long; is this the address of a lease API?".into(),
        },
    }
}
