//! What becomes of marks that went back with their store.
//!
//! Each may have been higher. So none is trusted: its own token, too, has to be confirmed once more,
//! and the coordinator confirms none but a present holder's. Those of the present holders are raised
//! at once, so that older ones are told that they are stale.

use async_trait::async_trait;

use super::Guard;
use crate::coordinator::etcd::sentinel::Snapshot;
use crate::coordinator::{CoordinatorError, Lease};
use crate::fence::{Rank, Resource};
use crate::store::{History, Raise};

/// Leases that are asked for, and marks that are raised, at a time.
const PAGE: usize = 500;

/// Where the present holders are learned.
#[async_trait]
pub(in crate::coordinator) trait Holders: Send + Sync + 'static {
    /// Live leases in the order of their resources, after `after`, at most `limit`.
    async fn list(
        &self,
        after: Option<Resource>,
        limit: usize,
    ) -> Result<Vec<Lease>, CoordinatorError>;
}

impl Guard {
    /// Broken off, it begins again the next time. If another gateway was quicker, it may have known
    /// less or more: the comparison is to be made anew.
    pub(super) async fn rebuild(
        &self,
        history: History,
        snapshot: &Snapshot,
        holders: &impl Holders,
    ) -> Result<(), CoordinatorError> {
        let mut after = None;
        let mut raised = 0;
        loop {
            let leases = holders.list(after, PAGE).await?;
            let raises = leases.iter().map(|lease| Raise {
                resource: lease.resource.clone(),
                rank: Rank { epoch: history.epoch, token: lease.token },
                confirmed: true,
                owner: Some(lease.owner.clone()),
                grant: None,
                spare: None,
                drain: None,
            });
            self.history.raise_marks(raises.collect()).await?;
            raised += leases.len();
            match leases.last() {
                Some(last) if leases.len() == PAGE => after = Some(last.resource.clone()),
                _ => break,
            }
        }
        let (nonce, sentinel) = snapshot.sentinel.clone().unwrap_or_default();
        let revision = snapshot.revision;
        let known = History { nonce, sentinel, next: None, revision, ..history.clone() };
        // In one transaction with the distrust: else a crash in between would leave marks that are
        // taken for good.
        if self.history.replace_history_and_distrust_marks(history, known).await? {
            tracing::warn!(
                holders = raised,
                "marks were rebuilt; each token has to be confirmed once more"
            );
        }
        Ok(())
    }
}
