//! The epoch guard: whether the coordinator goes on with the history that the store knows.
//!
//! An etcd that was wiped or restored hands out revisions again that it handed out before, often
//! under the same cluster id. Then no new token may be compared with the marks, until an operator
//! adopts the new history, which begins the next epoch. A store that was restored from a backup shows
//! by the same comparison, as the one that is behind: its marks are rebuilt.
//!
//! Every question for a holder asks for the history in the same request, so the check costs nothing
//! more. Invariant: an answer that is given out of here was read from the history whose epoch comes
//! with it. Deliberately absent: anything that stops writes under grants that stand.

mod judge;
mod metrics;
mod operator;
mod rebuild;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use self::judge::{Verdict, judge};
use super::CoordinatorError;
use super::etcd::sentinel::{Sentinel, Snapshot};
use crate::fence::Epoch;
use crate::store::{History, HistoryStore, StoreError};

pub use metrics::GuardMetrics;
pub use operator::{Adopted, GuardView};
pub(super) use rebuild::Holders;

/// How often the sentinel is looked at, and rewritten if anything else was written meanwhile. What is
/// lost of the last interval alone, on either side, is not noticed.
const BEAT: Duration = Duration::from_secs(5);
/// Another gateway may rewrite the sentinel between reading the store and reading etcd. Not often.
const LOOKS: usize = 3;

/// Compares the coordinator's history with the store's.
pub struct Guard {
    sentinel: Sentinel,
    history: Arc<dyn HistoryStore>,
    metrics: GuardMetrics,
    known: Mutex<Known>,
    /// Marks are rebuilt by one at a time.
    turn: tokio::sync::Mutex<()>,
    /// That of `known`, for those who ask without waiting.
    epoch: AtomicU32,
}

#[derive(Debug, Default)]
struct Known {
    history: Option<History>,
    /// The highest revision that an answer of this history had.
    seen: i64,
    /// What is wrong with the history, if anything.
    changed: Option<String>,
}

/// What is known before a question is sent; its answer must not be behind that.
#[derive(Debug)]
pub(super) struct Check {
    /// Whose sentinel to read.
    pub(super) id: String,
    seen: i64,
}

impl Guard {
    pub(super) fn new(
        sentinel: Sentinel,
        history: Arc<dyn HistoryStore>,
        metrics: GuardMetrics,
    ) -> Guard {
        Guard {
            sentinel,
            history,
            metrics,
            known: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            epoch: AtomicU32::new(Epoch::FIRST.get()),
        }
    }

    pub(super) const fn sentinel(&self) -> &Sentinel {
        &self.sentinel
    }

    /// The present epoch, as far as it is known without asking.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::from_i64(i64::from(self.epoch.load(Ordering::Relaxed))).unwrap_or(Epoch::FIRST)
    }

    /// To be called before a question is sent.
    pub(super) async fn begin(&self) -> Result<Check, CoordinatorError> {
        let check = self.lock().check();
        if let Some(check) = check {
            return Ok(check);
        }
        let history = self.recall().await?;
        Ok(Check { id: history.id, seen: 0 })
    }

    /// Whether an answer is of the history that is known, and which epoch that is.
    pub(super) async fn verify(
        &self,
        check: Check,
        snapshot: Snapshot,
    ) -> Result<Epoch, CoordinatorError> {
        let known = self.lock().history.clone();
        if let Some(history) = known
            && judge(&history, check.seen, &snapshot) == Verdict::Same
        {
            return Ok(self.goes_on(history, &snapshot));
        }
        match self.look().await? {
            (history, snapshot, Verdict::Same) => Ok(self.goes_on(history, &snapshot)),
            (_, _, Verdict::StoreBehind(why) | Verdict::Changed(why)) => Err(self.changed(why)),
        }
    }

    /// Reads both sides anew, until they agree or it is plain that they do not.
    async fn look(&self) -> Result<(History, Snapshot, Verdict), CoordinatorError> {
        let mut looks = 1;
        loop {
            let history = self.recall().await?;
            let seen = self.lock().seen_in(history.epoch);
            let snapshot = self.sentinel.look(&history.id).await?;
            let verdict = judge(&history, seen, &snapshot);
            if verdict == Verdict::Same || looks == LOOKS {
                return Ok((history, snapshot, verdict));
            }
            looks += 1;
        }
    }

    /// Compares both sides now; rebuilds the store's marks if it is the store that is behind.
    pub(super) async fn check(
        &self,
        holders: &impl Holders,
    ) -> Result<(History, Snapshot), CoordinatorError> {
        let _turn = self.turn.lock().await;
        loop {
            let (history, snapshot, verdict) = self.look().await?;
            match verdict {
                Verdict::Same => {
                    self.goes_on(history.clone(), &snapshot);
                    return Ok((history, snapshot));
                }
                Verdict::Changed(why) => return Err(self.changed(why)),
                Verdict::StoreBehind(why) => {
                    tracing::warn!(why, "the fence store is older than the coordinator");
                    self.rebuild(history, &snapshot, holders).await?;
                }
            }
        }
    }

    /// What the store knows; at the first contact, what it shall know.
    async fn recall(&self) -> Result<History, CoordinatorError> {
        loop {
            if let Some(history) = self.history.history().await? {
                self.epoch.fetch_max(history.epoch.get(), Ordering::Relaxed);
                return Ok(history);
            }
            let id = uuid::Uuid::new_v4().simple().to_string();
            let present = self.sentinel.look(&id).await?;
            // Marks that are there already came from another coordinator.
            let is_new = self.history.is_empty().await?;
            let history = History {
                epoch: if is_new { Epoch::FIRST } else { Epoch::FIRST.next() },
                id,
                ..unmarked(&present)
            };
            // If another gateway was quicker, then what that one wrote counts.
            self.history.replace_history(None, history).await?;
        }
    }

    /// Rewrites the sentinel, if anything was written since, or if it has to be now. Each step is
    /// written into the store before the next, so that it can be left off at any point, and gone on
    /// with by any gateway.
    async fn beat(&self, holders: &impl Holders, always: bool) -> Result<(), CoordinatorError> {
        let (history, snapshot) = self.check(holders).await?;
        if !always && history.next.is_none() && snapshot.revision <= history.sentinel {
            return Ok(());
        }
        let nonce = history.next.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let begun = History { next: Some(nonce.clone()), ..history.clone() };
        if begun != history && !self.history.replace_history(Some(history), begun.clone()).await? {
            return Ok(()); // another gateway does it
        }
        self.sentinel.rewrite(&begun.id, begun.sentinel, &nonce).await?;
        let written = self.sentinel.look(&begun.id).await?;
        let Some((found, sentinel)) = written.sentinel.filter(|(found, _)| *found == nonce) else {
            return Ok(());
        };
        let revision = written.revision.max(begun.revision);
        let done = History { nonce: found, sentinel, next: None, revision, ..begun.clone() };
        if self.history.replace_history(Some(begun), done.clone()).await? {
            self.lock().history = Some(done);
        }
        Ok(())
    }

    fn goes_on(&self, history: History, snapshot: &Snapshot) -> Epoch {
        let epoch = history.epoch;
        let mut known = self.lock();
        // An answer that was on its way for long must not bring an older epoch back.
        if known.history.as_ref().is_none_or(|other| other.epoch <= epoch) {
            known.seen = known.seen_in(epoch).max(snapshot.revision);
            known.history = Some(history);
            self.epoch.store(epoch.get(), Ordering::Relaxed);
            self.metrics.epoch.set(i64::from(epoch.get()));
        }
        self.metrics.changed.set(0);
        if known.changed.take().is_some() {
            tracing::info!(%epoch, "the coordinator's history is the one that is known again");
        }
        epoch
    }

    fn changed(&self, why: String) -> CoordinatorError {
        self.metrics.changed.set(1);
        if self.lock().changed.replace(why.clone()).is_none() {
            tracing::error!(
                why,
                "the coordinator has another history than before: no new token is admitted until \
                 it is back, or `fencegate coordinator adopt` is given"
            );
        }
        CoordinatorError::Changed(why)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// What was seen of another history says nothing about this one.
    fn seen_in(&self, epoch: Epoch) -> i64 {
        if self.history.as_ref().is_some_and(|known| known.epoch == epoch) { self.seen } else { 0 }
    }

    fn check(&self) -> Option<Check> {
        self.history.as_ref().map(|history| Check { id: history.id.clone(), seen: self.seen })
    }
}

/// A history of which the sentinel is as it was found: what it holds is nobody's next.
fn unmarked(present: &Snapshot) -> History {
    let (nonce, sentinel) = present.sentinel.clone().unwrap_or_default();
    History {
        epoch: Epoch::FIRST,
        id: String::new(),
        cluster_id: present.cluster_id,
        revision: present.revision,
        nonce,
        sentinel,
        next: None,
    }
}

/// Looks after the sentinel until told to stop.
pub(super) async fn watch(guard: Arc<Guard>, holders: Arc<impl Holders>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // At first in any case: backups from before this run are then known to be.
    let mut always = true;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match guard.beat(&*holders, always).await {
            Ok(()) => always = false,
            Err(CoordinatorError::Changed(_)) => {}
            Err(error) => tracing::debug!(%error, "the coordinator's history was not checked"),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("known", &*self.lock()).finish_non_exhaustive()
    }
}

impl From<StoreError> for CoordinatorError {
    fn from(error: StoreError) -> CoordinatorError {
        CoordinatorError::Unavailable(error.to_string())
    }
}
