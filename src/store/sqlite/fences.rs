//! Marks and grants in SQLite. Raises and loads of different resources that arrive together are
//! one transaction and a few statements, whatever their number.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::SqliteConnection;
use tokio_util::task::TaskTracker;

use super::BATCH_CALLS;
use super::Database;
use super::columns::{FenceColumns, fence_row, left_grant, millis, names, rank, resource};
use crate::batch::Batcher;
use crate::clock::{Clock, WallTime};
use crate::fence::{Grant, LeftGrant, Mark, OverGrant, Owner, Rank, Resource};
use crate::metrics::Operation;
use crate::store::{FenceRow, FenceState, FenceStore, InstanceId, Left, Raise, Raised, StoreError};

/// The [`FenceStore`] of one SQLite file.
#[derive(Debug)]
pub struct SqliteFences {
    pub(super) database: Database,
    loads: Batcher<Resource, FenceState, StoreError>,
    pub(super) raises: Batcher<Raise, Raised, StoreError>,
}

impl SqliteFences {
    /// Keeps marks and grants in `database`.
    #[must_use]
    pub fn new(database: &Database, clock: Clock, tasks: &TaskTracker) -> SqliteFences {
        let instance = database.instance().as_i64();
        let for_loads = database.clone();
        let loads = Batcher::new(tasks, BATCH_CALLS, 1, move |resources| {
            let database = for_loads.clone();
            Box::pin(async move {
                database
                    .call(Operation::Load, move |c| Box::pin(load_all(c, instance, resources)))
                    .await
            })
        });
        let for_raises = database.clone();
        let raises = Batcher::new(tasks, BATCH_CALLS, 1, move |raises| {
            let database = for_raises.clone();
            let now = clock.wall();
            Box::pin(async move {
                database
                    .call(Operation::Raise, move |c| Box::pin(raise_all(c, instance, now, raises)))
                    .await
            })
        });
        SqliteFences { database: database.clone(), loads, raises }
    }
}

#[async_trait]
impl FenceStore for SqliteFences {
    async fn load(&self, resource: Resource) -> Result<FenceState, StoreError> {
        self.loads.call(resource).await
    }

    /// Nobody shares the file: `instance` is this one.
    async fn raise(&self, _: InstanceId, raise: Raise) -> Result<Raised, StoreError> {
        self.raises.call(raise).await
    }

    async fn is_granted_elsewhere(
        &self,
        _: InstanceId,
        _: Resource,
        _: Rank,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Statements are carried out in the order in which they were asked for: there is one connection, and
    /// the records need no numbers.
    async fn give_back(
        &self,
        _: InstanceId,
        grants: Vec<(Resource, OverGrant)>,
    ) -> Result<(), StoreError> {
        self.database
            .call(Operation::GiveBack, move |connection| {
                Box::pin(async move {
                    sqlx::query(
                        "DELETE FROM grants WHERE (resource, epoch, token) IN
                         (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))",
                    )
                    .bind(names(grants.iter().map(|(resource, over)| (resource, over.rank))))
                    .execute(connection)
                    .await?;
                    Ok(())
                })
            })
            .await
    }

    async fn give_back_all_but(
        &self,
        _: InstanceId,
        keep: Vec<(Resource, Rank)>,
    ) -> Result<(), StoreError> {
        let instance = self.database.instance().as_i64();
        self.database
            .call(Operation::GiveBack, move |connection| {
                Box::pin(async move {
                    sqlx::query(
                        "DELETE FROM grants WHERE instance = ?1 AND (resource, epoch, token) NOT IN
                         (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?2))",
                    )
                    .bind(instance)
                    .bind(names(keep.iter().map(|(resource, rank)| (resource, *rank))))
                    .execute(connection)
                    .await?;
                    Ok(())
                })
            })
            .await
    }

    async fn left(&self, limit: u32) -> Result<Vec<Left>, StoreError> {
        let instance = self.database.instance().as_i64();
        self.database
            .call(Operation::List, move |connection| {
                Box::pin(async move {
                    let rows: Vec<(String, i64, i64, i64)> = sqlx::query_as(
                        "SELECT resource, epoch, token, settle_ms FROM grants
                         WHERE instance < ?1 LIMIT ?2",
                    )
                    .bind(instance)
                    .bind(limit)
                    .fetch_all(connection)
                    .await?;
                    rows.into_iter()
                        .map(|(name, epoch, token, settle_ms)| {
                            let (resource, grant) =
                                (resource(&name)?, left_grant(epoch, token, settle_ms)?);
                            Ok(Left { resource, grant, gone_since: None })
                        })
                        .collect()
                })
            })
            .await
    }

    async fn count_left(&self) -> Result<u64, StoreError> {
        let instance = self.database.instance().as_i64();
        self.database
            .call(Operation::List, move |connection| {
                Box::pin(async move {
                    let (count,): (i64,) =
                        sqlx::query_as("SELECT count(*) FROM grants WHERE instance < ?1")
                            .bind(instance)
                            .fetch_one(connection)
                            .await?;
                    Ok(count.unsigned_abs())
                })
            })
            .await
    }

    async fn forget_left(&self, settle: Duration) -> Result<bool, StoreError> {
        let instance = self.database.instance().as_i64();
        self.database
            .call(Operation::GiveBack, move |connection| {
                Box::pin(async move {
                    sqlx::query(
                        "DELETE FROM grants WHERE (resource, epoch, token) IN
                         (SELECT resource, epoch, token FROM grants
                          WHERE instance < ?1 AND settle_ms <= ?2 LIMIT 10000)",
                    )
                    .bind(instance)
                    .bind(millis(settle))
                    .execute(&mut *connection)
                    .await?;
                    let (is_left,) =
                        sqlx::query_as("SELECT EXISTS (SELECT 1 FROM grants WHERE instance < ?1)")
                            .bind(instance)
                            .fetch_one(connection)
                            .await?;
                    Ok(is_left)
                })
            })
            .await
    }

    async fn list(&self, after: Option<Resource>, limit: u32) -> Result<Vec<FenceRow>, StoreError> {
        self.database
            .call(Operation::List, move |connection| {
                Box::pin(async move {
                    let rows: Vec<FenceColumns> = sqlx::query_as(
                        "SELECT resource, epoch, token, confirmed, owner, updated_at FROM fences
                         WHERE resource > ?1 ORDER BY resource LIMIT ?2",
                    )
                    .bind(after.as_ref().map_or("", Resource::as_str))
                    .bind(limit)
                    .fetch_all(connection)
                    .await?;
                    rows.into_iter().map(fence_row).collect()
                })
            })
            .await
    }

    async fn show(&self, resource: Resource) -> Result<Option<FenceRow>, StoreError> {
        self.database
            .call(Operation::List, move |connection| {
                Box::pin(async move {
                    let row: Option<FenceColumns> = sqlx::query_as(
                        "SELECT resource, epoch, token, confirmed, owner, updated_at FROM fences
                         WHERE resource = ?1",
                    )
                    .bind(resource.as_str())
                    .fetch_optional(connection)
                    .await?;
                    row.map(fence_row).transpose()
                })
            })
            .await
    }
}

async fn load_all(
    connection: &mut SqliteConnection,
    instance: i64,
    resources: Vec<Resource>,
) -> Result<Vec<FenceState>, sqlx::Error> {
    let names = json!(resources).to_string();
    let marks = marks(connection, &names).await?;
    let rows: Vec<(String, i64, i64, i64)> = sqlx::query_as(
        "SELECT resource, epoch, token, settle_ms FROM grants
         WHERE resource IN (SELECT value FROM json_each(?1)) AND instance < ?2",
    )
    .bind(&names)
    .bind(instance)
    .fetch_all(connection)
    .await?;
    let mut left: HashMap<String, Vec<LeftGrant>> = HashMap::new();
    for (resource, epoch, number, settle_ms) in rows {
        left.entry(resource).or_default().push(left_grant(epoch, number, settle_ms)?);
    }
    Ok(resources
        .iter()
        .map(|resource| FenceState {
            mark: marks.get(resource.as_str()).map(|(mark, _)| *mark),
            raised_at: marks.get(resource.as_str()).map(|(_, raised_at)| *raised_at),
            left: left.get(resource.as_str()).cloned().unwrap_or_default(),
        })
        .collect())
}

/// Decides the raises in the order of their arrival, then writes only where each resource ends up:
/// tokens that were overtaken within the batch were never granted anything.
async fn raise_all(
    connection: &mut SqliteConnection,
    instance: i64,
    now: WallTime,
    raises: Vec<Raise>,
) -> Result<Vec<Raised>, sqlx::Error> {
    let names = json!(raises.iter().map(|raise| &raise.resource).collect::<Vec<_>>());
    let marks = marks(connection, &names.to_string()).await?;
    let mut marks: HashMap<String, Mark> =
        marks.into_iter().map(|(name, (mark, _))| (name, mark)).collect();
    let mut owners: HashMap<&str, Option<&Owner>> = HashMap::new();
    for raise in &raises {
        let asked = Mark { rank: raise.rank, confirmed: raise.confirmed };
        if marks.get(raise.resource.as_str()).is_none_or(|mark| asked > *mark) {
            marks.insert(raise.resource.to_string(), asked);
            owners.insert(raise.resource.as_str(), raise.owner.as_ref());
        }
    }
    let fences: Vec<Value> = owners
        .iter()
        .map(|(name, owner)| {
            let Mark { rank: Rank { epoch, token }, confirmed } = marks[*name];
            json!([name, epoch, token.as_i64(), confirmed, owner])
        })
        .collect();
    let mut grants: HashMap<&str, (Rank, Duration)> = HashMap::new();
    for raise in &raises {
        if let Some(Grant { settle, .. }) = raise.grant
            && marks[raise.resource.as_str()].rank == raise.rank
        {
            let longest = grants.entry(raise.resource.as_str()).or_insert((raise.rank, settle));
            longest.1 = longest.1.max(settle);
        }
    }
    let grants: Vec<Value> = grants
        .iter()
        .map(|(name, (Rank { epoch, token }, settle))| {
            json!([name, epoch, token.as_i64(), millis(*settle)])
        })
        .collect();
    write_fences(connection, now, fences).await?;
    write_grants(connection, instance, grants).await?;
    let raised = |raise: &Raise| {
        let mark = marks[raise.resource.as_str()];
        Raised { mark, elsewhere: false, spent: false }
    };
    Ok(raises.iter().map(raised).collect())
}

async fn write_fences(
    connection: &mut SqliteConnection,
    now: WallTime,
    fences: Vec<Value>,
) -> Result<(), sqlx::Error> {
    if fences.is_empty() {
        return Ok(());
    }
    // The comparison is made once more where it counts: whatever the code above does, a row of this
    // table does not go back.
    sqlx::query(
        "INSERT INTO fences (resource, epoch, token, confirmed, owner, updated_at)
         SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, ?2
         FROM json_each(?1) WHERE true
         ON CONFLICT (resource) DO UPDATE SET
             epoch = excluded.epoch, token = excluded.token, confirmed = excluded.confirmed,
             owner = excluded.owner, updated_at = excluded.updated_at
         WHERE (excluded.epoch, excluded.token, excluded.confirmed)
             > (fences.epoch, fences.token, fences.confirmed)",
    )
    .bind(Value::Array(fences).to_string())
    .bind(now.as_millis())
    .execute(connection)
    .await?;
    Ok(())
}

async fn write_grants(
    connection: &mut SqliteConnection,
    instance: i64,
    grants: Vec<Value>,
) -> Result<(), sqlx::Error> {
    if grants.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO grants (resource, epoch, token, instance, settle_ms)
         SELECT value ->> 0, value ->> 1, value ->> 2, ?2, value ->> 3 FROM json_each(?1) WHERE true
         ON CONFLICT (resource, epoch, token) DO UPDATE SET
             instance = excluded.instance, settle_ms = max(grants.settle_ms, excluded.settle_ms)",
    )
    .bind(Value::Array(grants).to_string())
    .bind(instance)
    .execute(connection)
    .await?;
    Ok(())
}

async fn marks(
    connection: &mut SqliteConnection,
    names: &str,
) -> Result<HashMap<String, (Mark, WallTime)>, sqlx::Error> {
    let rows: Vec<(String, i64, i64, bool, i64)> = sqlx::query_as(
        "SELECT resource, epoch, token, confirmed, updated_at FROM fences
         WHERE resource IN (SELECT value FROM json_each(?1))",
    )
    .bind(names)
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|(resource, epoch, number, confirmed, at)| {
            let mark = Mark { rank: rank(epoch, number)?, confirmed };
            Ok((resource, (mark, WallTime::from_millis(at))))
        })
        .collect()
}
