//! What is known of the coordinator's history, in SQLite.

use async_trait::async_trait;
use futures_util::future::try_join_all;
use sqlx::SqliteConnection;

use super::SqliteFences;
use crate::fence::Epoch;
use crate::metrics::Operation;
use crate::store::{History, HistoryStore, Raise, StoreError};

#[async_trait]
impl HistoryStore for SqliteFences {
    async fn history(&self) -> Result<Option<History>, StoreError> {
        self.database.call(Operation::History, |connection| Box::pin(read(connection))).await
    }

    async fn replace_history(
        &self,
        known: Option<History>,
        new: History,
    ) -> Result<bool, StoreError> {
        self.database
            .call(Operation::History, move |connection| {
                Box::pin(async move { replace(connection, known, new).await })
            })
            .await
    }

    async fn replace_history_and_distrust_marks(
        &self,
        known: History,
        new: History,
    ) -> Result<bool, StoreError> {
        self.database
            .call(Operation::History, move |connection| {
                Box::pin(async move {
                    let is_replaced = replace(&mut *connection, Some(known), new).await?;
                    if is_replaced {
                        sqlx::query("UPDATE fences SET confirmed = FALSE")
                            .execute(connection)
                            .await?;
                    }
                    Ok(is_replaced)
                })
            })
            .await
    }

    async fn raise_marks(&self, raises: Vec<Raise>) -> Result<(), StoreError> {
        try_join_all(raises.into_iter().map(|raise| self.raises.call(raise))).await?;
        Ok(())
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        self.database
            .call(Operation::History, |connection| {
                Box::pin(async move {
                    let (is_empty,): (bool,) =
                        sqlx::query_as("SELECT NOT EXISTS (SELECT 1 FROM fences)")
                            .fetch_one(connection)
                            .await?;
                    Ok(is_empty)
                })
            })
            .await
    }
}

type Columns = (i64, String, String, i64, String, i64, Option<String>);

async fn read(connection: &mut SqliteConnection) -> Result<Option<History>, sqlx::Error> {
    let row: Option<Columns> = sqlx::query_as(
        "SELECT epoch, id, cluster_id, revision, nonce, sentinel, next FROM coordinator_history",
    )
    .fetch_optional(connection)
    .await?;
    row.map(|(epoch, id, cluster_id, revision, nonce, sentinel, next)| {
        let is_no = |what: &str| sqlx::Error::Decode(format!("the history has no {what}").into());
        Ok(History {
            epoch: Epoch::from_i64(epoch).ok_or_else(|| is_no("epoch"))?,
            id,
            cluster_id: cluster_id.parse().map_err(|_| is_no("cluster id"))?,
            revision,
            nonce,
            sentinel,
            next,
        })
    })
    .transpose()
}

/// Comparing and writing are one transaction, and there is no other connection.
async fn replace(
    connection: &mut SqliteConnection,
    known: Option<History>,
    new: History,
) -> Result<bool, sqlx::Error> {
    if read(&mut *connection).await? != known {
        return Ok(false);
    }
    sqlx::query(
        "INSERT OR REPLACE INTO coordinator_history
         (only, epoch, id, cluster_id, revision, nonce, sentinel, next)
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )
    .bind(i64::from(new.epoch.get()))
    .bind(new.id)
    .bind(new.cluster_id.to_string())
    .bind(new.revision)
    .bind(new.nonce)
    .bind(new.sentinel)
    .bind(new.next)
    .execute(connection)
    .await?;
    Ok(true)
}
