//! What is known of the coordinator's history, in PostgreSQL.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::PostgresFences;
use crate::fence::Epoch;
use crate::metrics::Operation;
use crate::store::{History, HistoryStore, StoreError};

/// As the table has it. The cluster's number is a text, since it does not fit a column.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    epoch: i64,
    id: String,
    cluster_id: String,
    revision: i64,
    nonce: String,
    sentinel: i64,
    next: Option<String>,
}

impl From<History> for Row {
    fn from(history: History) -> Row {
        let History { epoch, id, cluster_id, revision, nonce, sentinel, next } = history;
        let (epoch, cluster_id) = (i64::from(epoch.get()), cluster_id.to_string());
        Row { epoch, id, cluster_id, revision, nonce, sentinel, next }
    }
}

impl TryFrom<Row> for History {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<History, StoreError> {
        let Row { epoch, id, cluster_id, revision, nonce, sentinel, next } = row;
        let is_no = |what: &str| StoreError(format!("the history has no {what}").into());
        let epoch = Epoch::from_i64(epoch).ok_or_else(|| is_no("epoch"))?;
        let cluster_id = cluster_id.parse().map_err(|_| is_no("cluster id"))?;
        Ok(History { epoch, id, cluster_id, revision, nonce, sentinel, next })
    }
}

impl PostgresFences {
    async fn replace(
        &self,
        known: Option<History>,
        new: History,
        distrust: bool,
    ) -> Result<bool, StoreError> {
        let (known, new) = (known.map(Row::from), Row::from(new));
        let asked = json!({"known": known, "new": new, "distrust": distrust});
        self.store.call(Operation::History, "fencegate_replace_history", &asked).await
    }
}

#[async_trait]
impl HistoryStore for PostgresFences {
    async fn history(&self) -> Result<Option<History>, StoreError> {
        let row: Option<Row> =
            self.store.call(Operation::History, "fencegate_history", &json!({})).await?;
        row.map(History::try_from).transpose()
    }

    async fn replace_history(
        &self,
        known: Option<History>,
        new: History,
    ) -> Result<bool, StoreError> {
        self.replace(known, new, false).await
    }

    async fn replace_history_and_distrust_marks(
        &self,
        known: History,
        new: History,
    ) -> Result<bool, StoreError> {
        self.replace(Some(known), new, true).await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        self.store.call(Operation::History, "fencegate_is_empty", &json!({})).await
    }
}
