//! What the store knows of the coordinator's history.
//!
//! Kept beside the marks, so that both are restored together, if ever: the coordinator is then ahead
//! of both, and that shows.

use async_trait::async_trait;

use super::{Raise, StoreError};
use crate::fence::Epoch;

/// One history of the coordinator, as far as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Which history it is.
    pub epoch: Epoch,
    /// What the sentinel of this store is called; made once for each store.
    pub id: String,
    /// The coordinator's name of itself.
    pub cluster_id: u64,
    /// A revision that the coordinator has reached.
    pub revision: i64,
    /// What the sentinel holds; empty if there is none yet.
    pub nonce: String,
    /// The revision at which that was written; 0 if there is none yet.
    pub sentinel: i64,
    /// What the sentinel may hold by now: written down here before it is written there.
    pub next: Option<String>,
}

/// Keeps what is known of the coordinator's history. All instances on one store share it.
#[async_trait]
pub trait HistoryStore: Send + Sync + 'static {
    /// What is known; `None` before the first contact.
    async fn history(&self) -> Result<Option<History>, StoreError>;

    /// Puts `new` in the place of `known`, if that still stands, and answers whether it did. On disk
    /// before it answers.
    async fn replace_history(
        &self,
        known: Option<History>,
        new: History,
    ) -> Result<bool, StoreError>;

    /// The same, and in the same transaction makes all marks unconfirmed: their tokens have to be
    /// confirmed once more when they come.
    async fn replace_history_and_distrust_marks(
        &self,
        known: History,
        new: History,
    ) -> Result<bool, StoreError>;

    /// Raises marks to the tokens of present holders. It grants nothing.
    async fn raise_marks(&self, raises: Vec<Raise>) -> Result<(), StoreError>;

    /// Whether no mark was ever raised.
    async fn is_empty(&self) -> Result<bool, StoreError>;
}
