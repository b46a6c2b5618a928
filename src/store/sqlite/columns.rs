//! Between columns and the types of the domain. What a row cannot hold is an error, not a guess.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::WallTime;
use crate::fence::{LeftGrant, Resource, Token};
use crate::store::FenceRow;

pub(super) type FenceColumns = (String, i64, bool, Option<String>, i64);

pub(super) fn fence_row(
    (name, number, confirmed, owner, at): FenceColumns,
) -> Result<FenceRow, sqlx::Error> {
    Ok(FenceRow {
        resource: resource(&name)?,
        highest_token: token(number)?,
        confirmed,
        owner,
        updated_at: WallTime::from_millis(at),
    })
}

pub(super) fn left_grant(number: i64, settle_ms: i64) -> Result<LeftGrant, sqlx::Error> {
    let settle = Duration::from_millis(u64::try_from(settle_ms).unwrap_or(0));
    Ok(LeftGrant { token: token(number)?, settle })
}

pub(super) fn resource(name: &str) -> Result<Resource, sqlx::Error> {
    Resource::new(name).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn token(number: i64) -> Result<Token, sqlx::Error> {
    Token::from_i64(number)
        .ok_or_else(|| sqlx::Error::Decode(format!("{number} is no fencing token").into()))
}

pub(super) fn pairs(grants: &[(Resource, Token)]) -> String {
    let pairs: Vec<Value> =
        grants.iter().map(|(resource, token)| json!([resource, token.as_i64()])).collect();
    Value::Array(pairs).to_string()
}
