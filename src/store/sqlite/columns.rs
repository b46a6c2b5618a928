//! Between columns and the types of the domain. What a row cannot hold is an error, not a guess.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::WallTime;
use crate::fence::{Epoch, LeftGrant, Rank, Resource, Token};
use crate::store::FenceRow;

pub(super) type FenceColumns = (String, i64, i64, bool, Option<String>, i64);

pub(super) fn fence_row(
    (name, epoch, number, confirmed, owner, at): FenceColumns,
) -> Result<FenceRow, sqlx::Error> {
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

pub(super) fn left_grant(
    epoch: i64,
    number: i64,
    settle_ms: i64,
) -> Result<LeftGrant, sqlx::Error> {
    let settle = Duration::from_millis(u64::try_from(settle_ms).unwrap_or(0));
    Ok(LeftGrant { rank: rank(epoch, number)?, settle })
}

pub(super) fn resource(name: &str) -> Result<Resource, sqlx::Error> {
    Resource::new(name).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn rank(epoch: i64, number: i64) -> Result<Rank, sqlx::Error> {
    let is_no = |number, what| sqlx::Error::Decode(format!("{number} is no {what}").into());
    Ok(Rank {
        epoch: Epoch::from_i64(epoch).ok_or_else(|| is_no(epoch, "epoch"))?,
        token: Token::from_i64(number).ok_or_else(|| is_no(number, "fencing token"))?,
    })
}

/// Names of grants: resource, epoch, token.
pub(super) fn names<'g>(grants: impl Iterator<Item = (&'g Resource, Rank)>) -> String {
    let names: Vec<Value> = grants
        .map(|(resource, Rank { epoch, token })| json!([resource, epoch, token.as_i64()]))
        .collect();
    Value::Array(names).to_string()
}
