//! The lease API's documents, as a client reads and writes them.
//!
//! Unknown fields are ignored, so that a newer server may say more. Moments are texts: they are
//! for people, and no deadline is ever computed from another machine's clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fence::{Owner, Resource, Token};

/// A live lease, as the server described it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// What it is for.
    pub resource: Resource,
    /// Who has it.
    pub owner: Owner,
    /// Its fencing token.
    pub token: Token,
    /// The coordinator's own name for it, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Its time to live from the last renewal, in milliseconds, as granted.
    pub ttl_ms: u64,
    /// When it was acquired, in RFC 3339.
    pub acquired_at: String,
    /// When it ends unless it is renewed, in RFC 3339 by the server's clock.
    pub expires_at: String,
}

impl Lease {
    /// The granted time to live.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// Some of the live leases, in the order of their resources.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeasePage {
    /// The leases.
    pub leases: Vec<Lease>,
    /// What to give as `after` for the next page; absent on the last one.
    pub next: Option<Resource>,
}

/// Who has the lease that could not be acquired.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Holder {
    /// Its name.
    pub owner: String,
    /// Its token.
    pub token: Token,
    /// When its lease ends unless it is renewed, in RFC 3339 by the server's clock.
    pub expires_at: String,
}

#[derive(Serialize)]
pub(super) struct AcquireBody<'a> {
    pub(super) owner: &'a Owner,
    pub(super) ttl_ms: u64,
    pub(super) wait_ms: u64,
}

#[derive(Serialize)]
pub(super) struct RenewBody<'a> {
    pub(super) owner: &'a Owner,
    pub(super) token: Token,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl_ms: Option<u64>,
}

/// The part of a problem document that decides what to do.
#[derive(Deserialize)]
pub(super) struct ProblemBody {
    pub(super) code: String,
    #[serde(default)]
    pub(super) detail: String,
    #[serde(default)]
    pub(super) holder: Option<Holder>,
}
