//! What goes to the functions of the schema and comes back, and the way between that and the domain's types.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Server;
use super::others::Other;
use crate::clock::WallTime;
use crate::fence::{Epoch, Grant, LeftGrant, Mark, OverGrant, Owner, Rank, Resource, Token};
use crate::store::{FenceRow, InstanceId, Raise, Raised, Revocation, StoreError};

/// Epoch, token, confirmed.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct MarkColumns(i64, i64, bool);

/// Epoch, token, confirmed, whether others have grants below; where a spare was named, whether its record was
/// rewritten.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct RaisedColumns(i64, i64, bool, bool, #[serde(default)] bool);

/// Resource, epoch, token, confirmed, milliseconds since 1970.
#[derive(Debug, Deserialize)]
pub(super) struct LoadedColumns(pub(super) String, i64, i64, bool, i64);

/// Resource, epoch, token, confirmed, owner, milliseconds since 1970.
#[derive(Debug, Deserialize)]
pub(super) struct FenceColumns(String, i64, i64, bool, Option<String>, i64);

/// Resource, epoch, token, number, the mark, drain in milliseconds.
#[derive(Debug, Deserialize)]
pub(super) struct RevokedColumns(String, i64, i64, i64, MarkColumns, Option<u64>);

/// Number, renewals, TTL in milliseconds, whether it is fenced.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct OtherColumns(i64, i64, u64, bool);

/// Resource, epoch, token, settle time in milliseconds, instance.
#[derive(Debug, Deserialize)]
pub(super) struct LeftColumns(String, i64, i64, u64, i64);

#[derive(Debug, Deserialize)]
pub(super) struct RaiseAnswer {
    pub(super) server: Server,
    pub(super) member: bool,
    #[serde(default)]
    pub(super) raised: Vec<RaisedColumns>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ElsewhereAnswer {
    pub(super) server: Server,
    pub(super) elsewhere: Vec<bool>,
}

/// Of a renewal, and of what was asserted.
#[derive(Debug, Deserialize)]
pub(super) struct MemberAnswer {
    pub(super) server: Server,
    pub(super) member: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct LookAnswer {
    pub(super) server: Server,
    pub(super) revoked: Vec<RevokedColumns>,
    pub(super) others: Vec<OtherColumns>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ServerAnswer {
    pub(super) server: Server,
}

#[derive(Debug, Deserialize)]
pub(super) struct LeftAnswer {
    pub(super) count: u64,
    pub(super) left: Vec<LeftColumns>,
}

impl AsRef<Server> for RaiseAnswer {
    fn as_ref(&self) -> &Server {
        &self.server
    }
}

impl AsRef<Server> for ElsewhereAnswer {
    fn as_ref(&self) -> &Server {
        &self.server
    }
}

/// A grant, or a mark, by its name.
#[derive(Debug, Serialize)]
pub(super) struct Named<'a> {
    resource: &'a str,
    epoch: u32,
    token: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settle_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<i64>,
}

impl<'a> Named<'a> {
    /// By its name alone.
    pub(super) fn rank(resource: &'a Resource, rank: Rank) -> Named<'a> {
        let Rank { epoch, token } = rank;
        Named {
            resource: resource.as_str(),
            epoch: epoch.get(),
            token: token.as_i64(),
            confirmed: None,
            settle_ms: None,
            number: None,
        }
    }

    pub(super) fn over(resource: &'a Resource, over: OverGrant) -> Named<'a> {
        Named { number: over.number, ..Named::rank(resource, over.rank) }
    }

    pub(super) fn grant(resource: &'a Resource, rank: Rank, grant: Grant) -> Named<'a> {
        let Grant { settle, number } = grant;
        let (settle_ms, number) = (Some(millis(settle)), Some(number));
        Named { settle_ms, number, ..Named::rank(resource, rank) }
    }

    pub(super) fn mark(resource: &'a Resource, mark: Mark) -> Named<'a> {
        Named { confirmed: Some(mark.confirmed), ..Named::rank(resource, mark.rank) }
    }
}

/// One raise of a batch: see `fencegate_asked`.
#[derive(Debug, Serialize)]
pub(super) struct Asked<'a> {
    nth: usize,
    resource: &'a str,
    epoch: u32,
    token: i64,
    confirmed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a Owner>,
    settle_ms: Option<u64>,
    number: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spare: Option<i64>,
    drain_ms: Option<u64>,
}

/// A batch of them.
#[derive(Debug, Serialize)]
pub(super) struct AskedTogether<'a> {
    pub(super) instance: i64,
    pub(super) raises: Vec<Asked<'a>>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(nth: usize, raise: &'a Raise) -> Asked<'a> {
        let Raise { resource, rank: Rank { epoch, token }, confirmed, owner, grant, spare, drain } =
            raise;
        Asked {
            nth,
            resource: resource.as_str(),
            epoch: epoch.get(),
            token: token.as_i64(),
            confirmed: *confirmed,
            owner: owner.as_ref(),
            settle_ms: grant.map(|grant| millis(grant.settle)),
            number: grant.map(|grant| grant.number),
            spare: spare.and_then(|spare| spare.number),
            drain_ms: drain.map(millis),
        }
    }
}

impl TryFrom<MarkColumns> for Mark {
    type Error = StoreError;

    fn try_from(MarkColumns(epoch, token, confirmed): MarkColumns) -> Result<Mark, StoreError> {
        Ok(Mark { rank: rank(epoch, token)?, confirmed })
    }
}

impl TryFrom<RaisedColumns> for Raised {
    type Error = StoreError;

    fn try_from(columns: RaisedColumns) -> Result<Raised, StoreError> {
        let RaisedColumns(epoch, token, confirmed, elsewhere, spent) = columns;
        Ok(Raised { mark: MarkColumns(epoch, token, confirmed).try_into()?, elsewhere, spent })
    }
}

impl LoadedColumns {
    pub(super) fn mark(&self) -> Result<Mark, StoreError> {
        MarkColumns(self.1, self.2, self.3).try_into()
    }

    pub(super) const fn raised_at(&self) -> WallTime {
        WallTime::from_millis(self.4)
    }
}

impl TryFrom<FenceColumns> for FenceRow {
    type Error = StoreError;

    fn try_from(columns: FenceColumns) -> Result<FenceRow, StoreError> {
        let FenceColumns(name, epoch, number, confirmed, owner, at) = columns;
        let Rank { epoch, token } = rank(epoch, number)?;
        Ok(FenceRow {
            resource: resource(&name)?,
            highest_token: token,
            epoch,
            confirmed,
            owner,
            updated_at: WallTime::from_millis(at),
        })
    }
}

impl TryFrom<RevokedColumns> for Revocation {
    type Error = StoreError;

    fn try_from(columns: RevokedColumns) -> Result<Revocation, StoreError> {
        let RevokedColumns(name, epoch, token, number, mark, drain_ms) = columns;
        Ok(Revocation {
            resource: resource(&name)?,
            grant: OverGrant { rank: rank(epoch, token)?, number: Some(number) },
            mark: mark.try_into()?,
            drain: drain_ms.map(Duration::from_millis),
        })
    }
}

impl From<OtherColumns> for Other {
    fn from(OtherColumns(id, renewals, ttl_ms, fenced): OtherColumns) -> Other {
        let (id, ttl) = (InstanceId::from_i64(id), Duration::from_millis(ttl_ms));
        Other { id, renewals, ttl, fenced }
    }
}

impl LeftColumns {
    pub(super) fn read(self) -> Result<(Resource, LeftGrant, InstanceId), StoreError> {
        let LeftColumns(name, epoch, token, settle_ms, instance) = self;
        let grant =
            LeftGrant { rank: rank(epoch, token)?, settle: Duration::from_millis(settle_ms) };
        Ok((resource(&name)?, grant, InstanceId::from_i64(instance)))
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn resource(name: &str) -> Result<Resource, StoreError> {
    Resource::new(name).map_err(|error| StoreError(error.to_string().into()))
}

fn rank(epoch: i64, number: i64) -> Result<Rank, StoreError> {
    let is_no = |number, what| StoreError(format!("{number} is no {what}").into());
    Ok(Rank {
        epoch: Epoch::from_i64(epoch).ok_or_else(|| is_no(epoch, "epoch"))?,
        token: Token::from_i64(number).ok_or_else(|| is_no(number, "fencing token"))?,
    })
}
