//! What stands in requests and answers. Kept apart from the domain types, so that neither changes
//! by accident with the other.

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use http::Uri;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::WallTime;
use crate::coordinator::Lease;
use crate::fence::{Owner, Resource, Token};
use crate::problem::{Code, Problem};

const TTL_MS: RangeInclusive<u64> = 100..=3_600_000;
const WAIT_MS: RangeInclusive<u64> = 0..=3_600_000;
const LIST_LEASES: RangeInclusive<u64> = 1..=1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AcquireBody {
    pub(super) owner: Owner,
    #[serde(default = "default_ttl_ms")]
    ttl_ms: u64,
    #[serde(default)]
    wait_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RenewBody {
    pub(super) owner: Owner,
    pub(super) token: Token,
    ttl_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseQuery {
    pub(super) owner: Owner,
    pub(super) token: Token,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    pub(super) after: Option<Resource>,
    #[serde(default = "default_limit")]
    limit: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct LeaseBody {
    resource: Resource,
    owner: Owner,
    token: Token,
    lease: String,
    ttl_ms: u64,
    acquired_at: WallTime,
    expires_at: WallTime,
}

#[derive(Debug, Serialize)]
pub(super) struct LeasesBody {
    leases: Vec<LeaseBody>,
    /// What `after` has to be for the next page; none on the last one.
    next: Option<Resource>,
}

#[derive(Debug, Serialize)]
pub(super) struct HolderBody<'a> {
    owner: &'a Owner,
    token: Token,
    expires_at: WallTime,
}

impl AcquireBody {
    pub(super) fn ttl(&self) -> Result<Duration, Problem> {
        millis("ttl_ms", self.ttl_ms, TTL_MS)
    }

    pub(super) fn wait(&self) -> Result<Duration, Problem> {
        millis("wait_ms", self.wait_ms, WAIT_MS)
    }
}

impl RenewBody {
    pub(super) fn ttl(&self) -> Result<Option<Duration>, Problem> {
        self.ttl_ms.map(|ttl_ms| millis("ttl_ms", ttl_ms, TTL_MS)).transpose()
    }
}

impl ListQuery {
    pub(super) fn limit(&self) -> Result<u32, Problem> {
        let limit = bounded("limit", self.limit, LIST_LEASES)?;
        Ok(u32::try_from(limit).unwrap_or(u32::MAX))
    }
}

impl From<Lease> for LeaseBody {
    fn from(lease: Lease) -> LeaseBody {
        LeaseBody {
            resource: lease.resource,
            owner: lease.owner,
            token: lease.token,
            lease: format!("{:x}", lease.token.get()),
            ttl_ms: u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX),
            acquired_at: lease.acquired_at,
            expires_at: lease.expires_at,
        }
    }
}

impl LeasesBody {
    pub(super) fn new(leases: Vec<Lease>, limit: u32) -> LeasesBody {
        let is_full = leases.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let last = leases.last().filter(|_| is_full);
        let next = last.map(|lease| lease.resource.clone());
        LeasesBody { leases: leases.into_iter().map(LeaseBody::from).collect(), next }
    }
}

impl<'a> From<&'a Lease> for HolderBody<'a> {
    fn from(lease: &'a Lease) -> HolderBody<'a> {
        HolderBody { owner: &lease.owner, token: lease.token, expires_at: lease.expires_at }
    }
}

/// Reads a body, whatever its `Content-Type`: `curl -d` sends another one than JSON's.
pub(super) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::new(Code::InvalidRequest, format!("the body: {error}")))
}

/// Reads the parameters of a query.
pub(super) fn parse_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let Query(query) = Query::try_from_uri(uri)
        .map_err(|error: QueryRejection| Problem::new(Code::InvalidRequest, error.body_text()))?;
    Ok(query)
}

fn millis(name: &str, value: u64, range: RangeInclusive<u64>) -> Result<Duration, Problem> {
    bounded(name, value, range).map(Duration::from_millis)
}

fn bounded(name: &str, value: u64, range: RangeInclusive<u64>) -> Result<u64, Problem> {
    if range.contains(&value) {
        return Ok(value);
    }
    let detail = format!("{name} is {value}; it must be {} to {}", range.start(), range.end());
    Err(Problem::new(Code::InvalidRequest, detail))
}

const fn default_ttl_ms() -> u64 {
    10_000
}

const fn default_limit() -> u64 {
    100
}
