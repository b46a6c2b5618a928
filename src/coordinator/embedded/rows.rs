//! The SQL of leases. Each function runs inside a transaction of the store.
//!
//! Invariant: whoever sees that a lease has expired deletes it in the same transaction, before
//! anybody is told. So an end that was once seen is final, whatever the clock does afterwards.

use std::time::Duration;

use serde_json::json;
use sqlx::SqliteConnection;

use crate::clock::WallTime;
use crate::coordinator::{Lease, Released};
use crate::fence::{Owner, Resource, Token};

type Columns = (String, String, i64, i64, i64, i64);

/// The columns in the order of [`Columns`]; a macro, so that statements are constants.
macro_rules! columns {
    () => {
        "resource, owner, token, ttl_ms, acquired_at, expires_at"
    };
}

/// What a look at some resources found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Leases that are live.
    pub(super) live: Vec<Lease>,
    /// Leases that had expired, and are deleted now.
    pub(super) expired: Vec<Lease>,
}

/// What an attempt to acquire found.
#[derive(Debug)]
pub(super) enum Attempt {
    /// The lease is the caller's. The second one is what it superseded.
    Granted(Lease, Option<Lease>),
    /// Another owner has it.
    Held(Lease),
    /// Nobody has it, but the caller may not take it: others came first.
    Free,
}

/// Looks at the leases of some resources.
pub(super) async fn look(
    connection: &mut SqliteConnection,
    now: WallTime,
    resources: &[Resource],
) -> Result<Seen, sqlx::Error> {
    let names = json!(resources).to_string();
    let rows: Vec<Columns> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM leases WHERE resource IN (SELECT value FROM json_each(?1))"
    ))
    .bind(&names)
    .fetch_all(&mut *connection)
    .await?;
    let (expired, live) = leases(rows)?.into_iter().partition(|lease| lease.expires_at <= now);
    let seen = Seen { live, expired };
    if !seen.expired.is_empty() {
        sqlx::query(
            "DELETE FROM leases
             WHERE resource IN (SELECT value FROM json_each(?1)) AND expires_at <= ?2",
        )
        .bind(&names)
        .bind(now.as_millis())
        .execute(connection)
        .await?;
    }
    Ok(seen)
}

/// Acquires the lease if it is the owner's already, or if nobody has it and the owner `may_take`
/// it.
pub(super) async fn attempt(
    connection: &mut SqliteConnection,
    now: WallTime,
    resource: Resource,
    owner: Owner,
    ttl: Duration,
    may_take: bool,
) -> Result<(Attempt, Vec<Lease>), sqlx::Error> {
    let Seen { mut live, expired } = look(connection, now, std::slice::from_ref(&resource)).await?;
    let superseded = match live.pop() {
        Some(lease) if lease.owner != owner => return Ok((Attempt::Held(lease), expired)),
        None if !may_take => return Ok((Attempt::Free, expired)),
        present => present,
    };
    let (number,): (i64,) =
        sqlx::query_as("UPDATE token_sequence SET last = last + 1 WHERE only = 1 RETURNING last")
            .fetch_one(&mut *connection)
            .await?;
    let token = token(number)?;
    let lease = Lease { resource, owner, token, ttl, acquired_at: now, expires_at: now + ttl };
    sqlx::query(concat!(
        "INSERT OR REPLACE INTO leases (",
        columns!(),
        ") VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
    ))
    .bind(lease.resource.as_str())
    .bind(lease.owner.as_str())
    .bind(number)
    .bind(millis(ttl))
    .bind(now.as_millis())
    .bind(lease.expires_at.as_millis())
    .execute(connection)
    .await?;
    Ok((Attempt::Granted(lease, superseded), expired))
}

/// Prolongs a live lease of this owner and token.
pub(super) async fn renew(
    connection: &mut SqliteConnection,
    now: WallTime,
    resource: Resource,
    owner: Owner,
    token: Token,
    ttl: Option<Duration>,
) -> Result<(Option<Lease>, Vec<Lease>), sqlx::Error> {
    let Seen { mut live, expired } = look(connection, now, &[resource]).await?;
    let Some(mut lease) = live.pop().filter(|lease| lease.owner == owner && lease.token == token)
    else {
        return Ok((None, expired));
    };
    lease.ttl = ttl.unwrap_or(lease.ttl);
    lease.expires_at = now + lease.ttl;
    sqlx::query("UPDATE leases SET ttl_ms = ?2, expires_at = ?3 WHERE resource = ?1")
        .bind(lease.resource.as_str())
        .bind(millis(lease.ttl))
        .bind(lease.expires_at.as_millis())
        .execute(connection)
        .await?;
    Ok((Some(lease), expired))
}

/// Ends a live lease of this owner and token; the lease is answered if it was ended.
pub(super) async fn release(
    connection: &mut SqliteConnection,
    now: WallTime,
    resource: Resource,
    owner: Owner,
    token: Token,
) -> Result<((Released, Option<Lease>), Vec<Lease>), sqlx::Error> {
    let Seen { mut live, expired } = look(connection, now, &[resource]).await?;
    let answer = match live.pop() {
        None => (Released::NotFound, None),
        Some(lease) if lease.owner != owner || lease.token != token => {
            (Released::OwnerMismatch, None)
        }
        Some(lease) => {
            sqlx::query("DELETE FROM leases WHERE resource = ?1")
                .bind(lease.resource.as_str())
                .execute(connection)
                .await?;
            (Released::Released, Some(lease))
        }
    };
    Ok((answer, expired))
}

/// Live leases in the order of their resources.
pub(super) async fn list(
    connection: &mut SqliteConnection,
    now: WallTime,
    after: Option<Resource>,
    limit: u32,
) -> Result<Vec<Lease>, sqlx::Error> {
    let rows: Vec<Columns> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM leases WHERE resource > ?1 AND expires_at > ?2
         ORDER BY resource LIMIT ?3"
    ))
    .bind(after.as_ref().map_or("", Resource::as_str))
    .bind(now.as_millis())
    .bind(limit)
    .fetch_all(connection)
    .await?;
    leases(rows)
}

/// How many live leases there are.
pub(super) async fn count(
    connection: &mut SqliteConnection,
    now: WallTime,
) -> Result<u64, sqlx::Error> {
    let (count,): (i64,) = sqlx::query_as("SELECT count(*) FROM leases WHERE expires_at > ?1")
        .bind(now.as_millis())
        .fetch_one(connection)
        .await?;
    Ok(count.unsigned_abs())
}

/// Deletes up to `limit` leases that have expired.
pub(super) async fn sweep(
    connection: &mut SqliteConnection,
    now: WallTime,
    limit: u32,
) -> Result<Vec<Lease>, sqlx::Error> {
    let rows: Vec<Columns> = sqlx::query_as(concat!(
        "DELETE FROM leases WHERE resource IN
         (SELECT resource FROM leases WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)
         RETURNING ",
        columns!()
    ))
    .bind(now.as_millis())
    .bind(limit)
    .fetch_all(connection)
    .await?;
    leases(rows)
}

/// Lets no lease end later than its TTL from now: the wall clock may have gone back while no
/// Fencegate ran, and then leases would last longer than their holders think.
pub(super) async fn clamp(
    connection: &mut SqliteConnection,
    now: WallTime,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE leases SET expires_at = ?1 + ttl_ms WHERE expires_at > ?1 + ttl_ms")
        .bind(now.as_millis())
        .execute(connection)
        .await?;
    Ok(())
}

fn leases(rows: Vec<Columns>) -> Result<Vec<Lease>, sqlx::Error> {
    rows.into_iter()
        .map(|(resource, owner, number, ttl_ms, acquired_at, expires_at)| {
            Ok(Lease {
                resource: resource.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
                owner: owner.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
                token: token(number)?,
                ttl: Duration::from_millis(u64::try_from(ttl_ms).unwrap_or(0)),
                acquired_at: WallTime::from_millis(acquired_at),
                expires_at: WallTime::from_millis(expires_at),
            })
        })
        .collect()
}

fn token(number: i64) -> Result<Token, sqlx::Error> {
    Token::from_i64(number)
        .ok_or_else(|| sqlx::Error::Decode(format!("{number} is no fencing token").into()))
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
