//! What an operator sees of the coordinator's history, and the word that adopts another one.

use serde::Serialize;

use super::judge::{Verdict, judge};
use super::{Guard, unmarked};
use crate::coordinator::CoordinatorError;
use crate::fence::Epoch;
use crate::store::History;

/// The history, for people.
#[derive(Clone, Debug, Serialize)]
pub struct GuardView {
    /// The present epoch.
    pub epoch: Epoch,
    /// What is wrong; `None` if the coordinator goes on with the history that is known.
    pub changed: Option<String>,
    /// The coordinator's name of itself, as it is known.
    pub cluster_id: String,
    /// A revision that the coordinator has reached, as it is known.
    pub revision: i64,
    /// The revision at which its history was last marked, as it is known; 0 if it never was.
    pub marked_revision: i64,
    /// Its present name of itself; `None` if it does not answer.
    pub present_cluster_id: Option<String>,
    /// Its present revision; `None` if it does not answer.
    pub present_revision: Option<i64>,
}

/// The end of an adoption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// The new history is known from now on, under this epoch.
    Epoch(Epoch),
    /// It is the history that is known: there is nothing to adopt.
    Unchanged(Epoch),
}

impl Guard {
    /// Adopts the coordinator's present history: the next epoch begins, with tokens above all
    /// earlier ones. By an operator's word only.
    ///
    /// # Errors
    /// The coordinator or the store did not answer.
    pub async fn adopt(&self) -> Result<Adopted, CoordinatorError> {
        let (history, snapshot, verdict) = self.look().await?;
        match verdict {
            Verdict::Same => return Ok(Adopted::Unchanged(self.goes_on(history, &snapshot))),
            Verdict::StoreBehind(_) => {
                let why = "the store went back, not the coordinator: its marks are rebuilt within \
                           seconds, and nothing is to be adopted";
                return Err(CoordinatorError::Changed(why.to_owned()));
            }
            Verdict::Changed(_) => {}
        }
        let adopted =
            History { epoch: history.epoch.next(), id: history.id.clone(), ..unmarked(&snapshot) };
        if !self.history.replace_history(Some(history), adopted.clone()).await? {
            let why = "another gateway changed what is known of it at this moment; look again";
            return Err(CoordinatorError::Unavailable(why.to_owned()));
        }
        tracing::warn!(epoch = %adopted.epoch, "the coordinator's new history was adopted");
        Ok(Adopted::Epoch(self.goes_on(adopted, &snapshot)))
    }

    /// What is known, and what the coordinator says now.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn view(&self) -> Result<GuardView, CoordinatorError> {
        let history = self.recall().await?;
        let present = self.sentinel.look(&history.id).await.ok();
        let seen = self.lock().seen_in(history.epoch);
        let changed = present.as_ref().and_then(|now| match judge(&history, seen, now) {
            Verdict::Same => None,
            Verdict::Changed(why) | Verdict::StoreBehind(why) => Some(why),
        });
        Ok(GuardView {
            epoch: history.epoch,
            changed,
            cluster_id: format!("{:x}", history.cluster_id),
            revision: history.revision.max(history.sentinel).max(seen),
            marked_revision: history.sentinel,
            present_cluster_id: present.as_ref().map(|now| format!("{:x}", now.cluster_id)),
            present_revision: present.map(|now| now.revision),
        })
    }
}
