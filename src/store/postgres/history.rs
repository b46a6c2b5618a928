//! What is known of the coordinator's history, in PostgreSQL.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::PostgresFences;
use super::wire::Asked;
use crate::fence::Epoch;
use crate::metrics::Operation;
use crate::store::{History, HistoryStore, Raise, StoreError};

/// Marks that one call makes unconfirmed: a store has millions of them, and a call has its limits.
const PAGE_MARKS: u32 = 10_000;

/// As it is kept. The cluster's number is unsigned, hence a text.
#[derive(Debug, Serialize, Deserialize)]
struct Columns {
    epoch: i64,
    id: String,
    cluster_id: String,
    revision: i64,
    nonce: String,
    sentinel: i64,
    next: Option<String>,
}

#[async_trait]
impl HistoryStore for PostgresFences {
    async fn history(&self) -> Result<Option<History>, StoreError> {
        let columns: Option<Columns> = self.ask("fencegate_history", &json!({})).await?;
        columns.map(History::try_from).transpose()
    }

    async fn replace_history(
        &self,
        known: Option<History>,
        new: History,
    ) -> Result<bool, StoreError> {
        let asked = json!({"known": known.map(Columns::from), "new": Columns::from(new)});
        self.ask("fencegate_replace_history", &asked).await
    }

    /// The marks first, page by page: broken off, all of it is done again. No mark is confirmed meanwhile,
    /// as no gateway takes the coordinator's word before the history is replaced.
    async fn replace_history_and_distrust_marks(
        &self,
        known: History,
        new: History,
    ) -> Result<bool, StoreError> {
        if self.history().await?.as_ref() != Some(&known) {
            return Ok(false);
        }
        let mut after = String::new();
        loop {
            let asked = json!({"after": after, "limit": PAGE_MARKS});
            match self.ask::<Option<String>>("fencegate_distrust", &asked).await? {
                Some(last) => after = last,
                None => break,
            }
        }
        self.replace_history(Some(known), new).await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        self.ask("fencegate_is_empty", &json!({})).await
    }

    async fn raise_marks(&self, raises: Vec<Raise>) -> Result<(), StoreError> {
        let rows: Vec<Asked> =
            raises.iter().enumerate().map(|(nth, raise)| Asked::new(nth, raise)).collect();
        self.ask("fencegate_confirm", &json!(rows)).await
    }
}

impl PostgresFences {
    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        function: &'static str,
        asked: &Value,
    ) -> Result<T, StoreError> {
        self.store.call(Operation::History, function, asked).await
    }
}

impl From<History> for Columns {
    fn from(history: History) -> Columns {
        let History { epoch, id, cluster_id, revision, nonce, sentinel, next } = history;
        let (epoch, cluster_id) = (i64::from(epoch.get()), cluster_id.to_string());
        Columns { epoch, id, cluster_id, revision, nonce, sentinel, next }
    }
}

impl TryFrom<Columns> for History {
    type Error = StoreError;

    fn try_from(columns: Columns) -> Result<History, StoreError> {
        let Columns { epoch, id, cluster_id, revision, nonce, sentinel, next } = columns;
        let is_no = |what: &str| StoreError(format!("the history has no {what}").into());
        let epoch = Epoch::from_i64(epoch).ok_or_else(|| is_no("epoch"))?;
        let cluster_id = cluster_id.parse().map_err(|_| is_no("cluster id"))?;
        Ok(History { epoch, id, cluster_id, revision, nonce, sentinel, next })
    }
}
