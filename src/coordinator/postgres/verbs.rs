//! The verbs: which function of the schema does what, and what its answer means.

use std::time::Duration;

use serde::Deserialize;

use super::database::{Database, millis, text, texts};
use crate::clock::WallTime;
use crate::coordinator::{CoordinatorError, Lease, Released};
use crate::fence::{Owner, Resource, Token};

/// How long a place in the queue lives without being kept.
pub(super) const PLACE_LIVES: Duration = Duration::from_secs(3);

/// A row of `fencegate_leases`.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    resource: Resource,
    owner: Owner,
    token: i64,
    ttl_ms: u64,
    acquired_at: i64,
    expires_at: i64,
}

/// An attempt to acquire.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    pub(super) resource: &'a Resource,
    pub(super) owner: &'a Owner,
    pub(super) ttl: Duration,
    /// The caller's place in the queue, if it has one.
    pub(super) place: Option<i64>,
    /// Whether it wants one if another owner has the lease.
    pub(super) waits: bool,
}

/// What an attempt found.
#[derive(Debug)]
pub(super) enum Found {
    /// The lease is the caller's. The second one is what it superseded.
    Granted(Lease, Option<Lease>),
    /// Another owner has it, and the caller has no place.
    Held(Lease),
    /// The caller has a place.
    Queued {
        place: i64,
        /// Who has the lease; nobody, if others came first and have not taken it yet.
        holder: Option<Lease>,
        /// When the lease ends unless it is renewed, if that is the caller's business.
        ends_in: Option<Duration>,
    },
}

/// An answer, and the leases that were found expired, and deleted, on the way.
pub(super) type Answer<T> = Result<(T, Vec<Lease>), CoordinatorError>;

#[derive(Deserialize)]
struct AttemptAnswer {
    now: i64,
    expired: Vec<Row>,
    found: String,
    lease: Option<Row>,
    superseded: Option<Row>,
    place: Option<i64>,
    is_first: Option<bool>,
}

pub(super) async fn attempt(database: &Database, attempt: Attempt<'_>) -> Answer<Found> {
    let Attempt { resource, owner, ttl, place, waits } = attempt;
    let place = place.map_or_else(|| "NULL".to_owned(), |place| place.to_string());
    let call = format!(
        "fencegate_leases_acquire({}, {}, {}, {place}, {waits}, {})",
        text(resource.as_str()),
        text(owner.as_str()),
        millis(ttl),
        millis(PLACE_LIVES)
    );
    let answer: AttemptAnswer = database.ask(&call).await?;
    let expired = leases(answer.expired)?;
    let lease = answer.lease.map(Lease::try_from).transpose()?;
    let found = match (answer.found.as_str(), lease, answer.place) {
        ("granted", Some(lease), _) => {
            Found::Granted(lease, answer.superseded.map(Lease::try_from).transpose()?)
        }
        ("held", Some(lease), None) => Found::Held(lease),
        ("held" | "free", holder, Some(place)) => {
            let first_waits_for = holder.as_ref().filter(|_| answer.is_first == Some(true));
            let now = WallTime::from_millis(answer.now);
            let ends_in = first_waits_for.map(|lease| lease.expires_at.since(now));
            Found::Queued { place, holder, ends_in }
        }
        _ => return Err(senseless("fencegate_leases_acquire")),
    };
    Ok((found, expired))
}

/// Gives a place up.
pub(super) async fn leave(database: &Database, place: i64) -> Result<(), CoordinatorError> {
    database.ask::<String>(&format!("to_jsonb(fencegate_leases_leave({place})::text)")).await?;
    Ok(())
}

/// Keeps places alive; answers those that have a reason to try.
pub(super) async fn keep(
    database: &Database,
    places: impl Iterator<Item = i64>,
) -> Result<Vec<i64>, CoordinatorError> {
    let places: Vec<_> = places.map(|place| place.to_string()).collect();
    let (places, keep) = (places.join(","), millis(PLACE_LIVES));
    database.ask(&format!("fencegate_leases_keep(ARRAY[{places}]::bigint[], {keep})")).await
}

#[derive(Deserialize)]
struct RenewAnswer {
    expired: Vec<Row>,
    lease: Option<Row>,
}

pub(super) async fn renew(
    database: &Database,
    resource: &Resource,
    owner: &Owner,
    token: Token,
    ttl: Option<Duration>,
) -> Answer<Option<Lease>> {
    let ttl = ttl.map_or_else(|| "NULL".to_owned(), |ttl| millis(ttl).to_string());
    let (resource, owner) = (text(resource.as_str()), text(owner.as_str()));
    let call = format!("fencegate_leases_renew({resource}, {owner}, {token}, {ttl})");
    let answer: RenewAnswer = database.ask(&call).await?;
    Ok((answer.lease.map(Lease::try_from).transpose()?, leases(answer.expired)?))
}

#[derive(Deserialize)]
struct ReleaseAnswer {
    now: Option<i64>,
    expired: Vec<Row>,
    found: String,
    lease: Option<Row>,
}

/// Beside the answer, the lease that was ended and when.
pub(super) async fn release(
    database: &Database,
    resource: &Resource,
    owner: &Owner,
    token: Token,
) -> Answer<(Released, Option<(Lease, WallTime)>)> {
    let (resource, owner) = (text(resource.as_str()), text(owner.as_str()));
    let call = format!("fencegate_leases_release({resource}, {owner}, {token})");
    let answer: ReleaseAnswer = database.ask(&call).await?;
    let released = match answer.found.as_str() {
        "released" => Released::Released,
        "owner_mismatch" => Released::OwnerMismatch,
        "not_found" => Released::NotFound,
        _ => return Err(senseless("fencegate_leases_release")),
    };
    let ended = match (answer.lease, answer.now) {
        (Some(row), Some(now)) => Some((Lease::try_from(row)?, WallTime::from_millis(now))),
        _ => None,
    };
    Ok(((released, ended), leases(answer.expired)?))
}

#[derive(Deserialize)]
struct HoldersAnswer {
    expired: Vec<Row>,
    live: Vec<Row>,
}

/// Answers those of the leases that are live.
pub(super) async fn holders(database: &Database, resources: &[Resource]) -> Answer<Vec<Lease>> {
    let call = format!("fencegate_leases_holders({})", texts(resources));
    let answer: HoldersAnswer = database.ask(&call).await?;
    Ok((leases(answer.live)?, leases(answer.expired)?))
}

pub(super) async fn list(
    database: &Database,
    after: Option<&Resource>,
    limit: u32,
) -> Result<Vec<Lease>, CoordinatorError> {
    let after = text(after.map_or("", Resource::as_str));
    leases(database.ask(&format!("fencegate_leases_list({after}, {limit})")).await?)
}

/// How many live leases there are.
pub(super) async fn count(database: &Database) -> Result<u64, CoordinatorError> {
    const LIVE: &str =
        "SELECT count(*) FROM fencegate_leases WHERE expires_at > fencegate_leases_now()";
    database.ask(LIVE).await
}

/// Deletes up to `limit` leases that have expired.
pub(super) async fn sweep(database: &Database, limit: u32) -> Result<Vec<Lease>, CoordinatorError> {
    leases(database.ask(&format!("fencegate_leases_sweep({limit})")).await?)
}

fn leases(rows: Vec<Row>) -> Result<Vec<Lease>, CoordinatorError> {
    rows.into_iter().map(Lease::try_from).collect()
}

impl TryFrom<Row> for Lease {
    type Error = CoordinatorError;

    fn try_from(row: Row) -> Result<Lease, CoordinatorError> {
        let token = Token::from_i64(row.token).ok_or_else(|| {
            CoordinatorError::Unavailable(format!("{} is no fencing token", row.token))
        })?;
        Ok(Lease {
            resource: row.resource,
            owner: row.owner,
            token,
            ttl: Duration::from_millis(row.ttl_ms),
            acquired_at: WallTime::from_millis(row.acquired_at),
            expires_at: WallTime::from_millis(row.expires_at),
        })
    }
}

fn senseless(function: &str) -> CoordinatorError {
    CoordinatorError::Unavailable(format!("{function} answered what this version does not know"))
}
