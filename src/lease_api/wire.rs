//! What stands in requests and answers. Kept apart from the domain types, so that neither changes
//! by accident with the other.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::WallTime;
use crate::coordinator::Lease;
use crate::fence::{Owner, Resource, Token};
use crate::http_server::bounded;
use crate::problem::Problem;

const TTL_MS: RangeInclusive<u64> = 100..=3_600_000;
const WAIT_MS: RangeInclusive<u64> = 0..=3_600_000;

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

fn millis(name: &str, value: u64, range: RangeInclusive<u64>) -> Result<Duration, Problem> {
    bounded(name, value, range).map(Duration::from_millis)
}

const fn default_ttl_ms() -> u64 {
    10_000
}
