//! What is asked of the store and the coordinator about one resource, and what the cell is told.
//!
//! Invariant: the cell learns of a mark or a grant only after the store confirmed it, and there is
//! one conversation at a time on a resource. Whoever leaves in the middle leaves the cell as it
//! was: what the store did all the same only makes the fence stricter once it is read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::elsewhere::await_others;
use super::{Demand, Fences, Refused, Slot, Timed, Waiting};
use crate::clock::Clock;
use crate::coordinator::{CoordinatorError, Holding};
use crate::fence::{Epoch, Mark, OverGrant, Owner, Rank, Resource, Step, Token};
use crate::store::{Raise, Raised, StoreError};
use crate::trace::TraceId;

/// A store or coordinator that takes longer is treated as not answering.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

impl Fences {
    /// A slot that stays in memory for as long as the caller holds it. What is raised on one that
    /// is being given up would stay unknown to its successor.
    async fn open_slot(&self, resource: &Resource) -> Result<Arc<Slot>, Refused> {
        loop {
            let slot = self.slot(resource);
            let changed = slot.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if slot.cell().touch(self.shared.clock.now()) {
                return Ok(Arc::clone(&slot));
            }
            self.wait_for_successor(&slot, changed).await?;
        }
    }

    /// Waits until a slot that is being given up is gone, or goes on.
    pub(super) async fn wait_for_successor(
        &self,
        slot: &Arc<Slot>,
        changed: Pin<&mut Notified<'_>>,
    ) -> Result<(), Refused> {
        // One that is gone already tells nobody any more. Asked after `changed` was enabled, so
        // that one that goes now does.
        if !self.slots.get(&slot.resource).is_some_and(|now| Arc::ptr_eq(&now, slot)) {
            return Ok(());
        }
        timeout(ANSWER_WITHIN, changed)
            .await
            .map_err(|_| StoreError("its grant could not be given back".into()).into())
    }

    /// Finds out what the cell lacks about this token. Where more than one question may be needed they are asked where
    /// the store and the coordinator have their connections: each one from another thread wakes two threads.
    pub(super) async fn converse(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        token: Token,
        demand: &Demand,
        asked: &Arc<Asked>,
    ) -> Result<(), Refused> {
        if !demand.terms.held && slot.cell().is_loaded() {
            return Box::pin(self.raise(slot, token, demand, asked)).await;
        }
        let (fences, slot) = (Arc::clone(self), Arc::clone(slot));
        let (demand, asked) = (*demand, Arc::clone(asked));
        let conversation = self.home.spawn(async move {
            fences.load(&slot).await?;
            fences.raise(&slot, token, &demand, &asked).await
        });
        match AbortOnDropHandle::new(conversation).await {
            Ok(ended) => ended,
            Err(ended) => Err(StoreError(ended.to_string().into()).into()),
        }
    }

    async fn load(&self, slot: &Slot) -> Result<(), Refused> {
        if slot.cell().is_loaded() {
            return Ok(());
        }
        let _turn = turn(slot).await?;
        if slot.cell().is_loaded() {
            return Ok(());
        }
        let state = answer_within(self.shared.store.load(slot.resource.clone())).await?;
        let raised_at = |clock: Clock| match state.raised_at {
            Some(at) => clock.now() - clock.wall().since(at),
            None => clock.now(),
        };
        let mark = state.mark.map(|mark| (mark, raised_at(self.shared.clock)));
        slot.cell().loaded(mark, &state.left, self.dead_since);
        slot.changed.notify_waiters();
        Ok(())
    }

    async fn raise(
        &self,
        slot: &Arc<Slot>,
        token: Token,
        demand: &Demand,
        asked: &Asked,
    ) -> Result<(), Refused> {
        // One conversation with store and coordinator at a time on one resource: of many writes of
        // one new token the first asks, and the others find its answer.
        let _turn = turn(slot).await?;
        let before = slot.cell().mark();
        let first = slot.cell().first_step(token, &demand.terms, self.coordinator.epoch());
        let epoch = before.map_or(Epoch::FIRST, |mark| mark.rank.epoch);
        let (epoch, owner) = match first {
            Some(Step::Grant) => (epoch, None),
            Some(Step::Confirm) if demand.terms.held => {
                match self.confirm(slot, token, demand, before, asked).await? {
                    Some((epoch, owner)) => (epoch, Some(owner)),
                    None => return Ok(()),
                }
            }
            Some(Step::Confirm) => (epoch, None),
            _ => return Ok(()),
        };
        let raise = Raise {
            resource: slot.resource.clone(),
            rank: Rank { epoch, token },
            confirmed: true,
            owner,
            grant: Some(self.shared.new_grant(demand.terms.settle)),
            spare: None,
            drain: demand.terms.drain,
        };
        let recorded = self.record(slot, raise, before, Some(asked.trace_id));
        Ok(answer_within(recorded).await?)
    }

    /// Asks the coordinator whose token this is. `None`: a newer holder's, and the mark has been
    /// raised to that one's token, so that the cell knows by now.
    async fn confirm(
        &self,
        slot: &Arc<Slot>,
        token: Token,
        demand: &Demand,
        before: Option<Mark>,
        asked: &Asked,
    ) -> Result<Option<(Epoch, Owner)>, Refused> {
        let answer = {
            let _timed = Timed::new(&self.shared, &self.shared.metrics.coordinator, asked.trace_id);
            asked.is_coordinator.store(true, Ordering::Relaxed);
            timeout(ANSWER_WITHIN, self.coordinator.holder(slot.resource.clone())).await
        };
        asked.is_coordinator.store(false, Ordering::Relaxed);
        let Holding { lease, epoch } = answer.unwrap_or_else(|_| {
            Err(CoordinatorError::Unavailable("it took longer than 10 s".into()))
        })?;
        match lease {
            Some(lease) if lease.token == token => Ok(Some((epoch, lease.owner))),
            Some(lease) if lease.token > token => {
                let raise = Raise {
                    resource: slot.resource.clone(),
                    rank: Rank { epoch, token: lease.token },
                    confirmed: true,
                    owner: Some(lease.owner),
                    grant: None,
                    spare: None,
                    drain: demand.terms.drain,
                };
                let recorded = self.record(slot, raise, before, Some(asked.trace_id));
                answer_within(recorded).await?;
                Ok(None)
            }
            _ => Err(Refused::NotHeld { highest: before.map(|mark| mark.rank.token) }),
        }
    }

    /// Makes a raise durable, and only then known: promise 1. Without the trace of a write it is an
    /// operator's.
    async fn record(
        &self,
        slot: &Arc<Slot>,
        mut raise: Raise,
        before: Option<Mark>,
        trace_id: Option<TraceId>,
    ) -> Result<(), StoreError> {
        let Raise { rank, grant, owner, .. } = raise.clone();
        let times_given_back = slot.times_given_back.load(Ordering::Acquire);
        let mut spare = Spare { slot, grant: grant.and_then(|_| self.spare_of(slot)) };
        raise.spare = spare.grant;
        let Raised { mark, elsewhere, spent } = {
            let _timed = trace_id
                .map(|trace_id| Timed::new(&self.shared, &self.shared.metrics.raise, trace_id));
            // In the name of the lease that this place is under: if that one is over, the store refuses.
            self.shared.store.raise(slot.lease.instance(), raise).await?
        };
        if spent {
            spare.grant = None;
        }
        drop(spare);
        let now = self.shared.clock.now();
        {
            let mut cell = slot.cell();
            cell.raised(mark, elsewhere, now);
            if let Some(grant) = grant
                && mark.rank == rank
            {
                cell.granted(rank, grant);
            }
        }
        if elsewhere {
            await_others(slot, mark.rank, times_given_back, &self.home);
        }
        self.release_over(slot);
        slot.changed.notify_waiters();
        if before.is_none_or(|before| before.rank < mark.rank) {
            self.shared.metrics.raises.inc(trace_id);
            let slot = Arc::clone(slot);
            // Nobody waits for the log: the write goes on, and its own lines may come first.
            self.shared.tasks.spawn(async move {
                let message =
                    if trace_id.is_some() { "mark raised" } else { "mark raised by an operator" };
                tracing::info!(
                    resource = %slot.resource,
                    owner = owner.as_ref().map(Owner::as_str),
                    token = %rank.token,
                    mark = %mark.rank.token,
                    mark_before = before.map(|mark| display(mark.rank.token)),
                    trace_id = trace_id.map(display),
                    "{message}"
                );
            });
        }
        Ok(())
    }

    fn spare_of(&self, slot: &Slot) -> Option<OverGrant> {
        slot.cell().take_spare(self.shared.clock.now())
    }

    /// Raises a mark by an operator's word. It admits nobody: the token still has to be confirmed.
    ///
    /// Once begun it goes on to its end, whoever stops waiting for it: a raise that the store has
    /// and the cell has not would shut nobody out.
    ///
    /// # Errors
    /// The store did not confirm in time, or too many wait on the resource.
    pub async fn raise_by_operator(
        self: &Arc<Self>,
        resource: Resource,
        token: Token,
    ) -> Result<OperatorRaise, Refused> {
        let fences = Arc::clone(self);
        let work = tokio::spawn(async move { fences.raise_to_the_end(&resource, token).await });
        match timeout(ANSWER_WITHIN, work).await {
            Ok(Ok(raised)) => raised,
            Ok(Err(ended)) => Err(StoreError(ended.to_string().into()).into()),
            Err(_) => Err(StoreError("it took longer than 10 s; the raise goes on".into()).into()),
        }
    }

    async fn raise_to_the_end(
        &self,
        resource: &Resource,
        token: Token,
    ) -> Result<OperatorRaise, Refused> {
        let slot = self.open_slot(resource).await?;
        let _waiting = Waiting::enter(&slot.waiters, self.bounds().waiters)?;
        self.load(&slot).await?;
        let _turn = turn(&slot).await?;
        let before = slot.cell().mark();
        let known = before.map_or(Epoch::FIRST, |mark| mark.rank.epoch);
        let rank = Rank { epoch: known.max(self.coordinator.epoch()), token };
        if let Some(mark) = before.filter(|mark| mark.rank >= rank) {
            return Ok(OperatorRaise::NotRaised(mark.rank.token));
        }
        let raise = Raise {
            resource: resource.clone(),
            rank,
            confirmed: false,
            owner: None,
            grant: None,
            spare: None,
            drain: None,
        };
        self.record(&slot, raise, before, None).await?;
        // The store may have had a higher one that this instance never heard of.
        let higher = slot.cell().mark().filter(|mark| mark.rank > rank);
        Ok(higher.map_or(OperatorRaise::Raised, |mark| OperatorRaise::NotRaised(mark.rank.token)))
    }
}

/// What an operator's raise did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorRaise {
    /// The mark is the operator's token now.
    Raised,
    /// The mark, which is this one, was there already or is above; it is never lowered.
    NotRaised(Token),
}

/// Who is being asked, to be blamed when time is up. It is the store unless it is the coordinator.
pub(super) struct Asked {
    is_coordinator: AtomicBool,
    /// The write for which it is asked.
    pub(super) trace_id: TraceId,
}

impl Asked {
    pub(super) const fn new(trace_id: TraceId) -> Asked {
        Asked { is_coordinator: AtomicBool::new(false), trace_id }
    }

    /// What a write is refused for if who was asked did not answer in time.
    pub(super) fn is_silent(&self) -> Refused {
        let why = "it took longer than this write waits for it";
        if self.is_coordinator.load(Ordering::Relaxed) {
            CoordinatorError::Unavailable(why.into()).into()
        } else {
            StoreError(why.into()).into()
        }
    }
}

/// A grant that is over and that a raise takes along. If its record does not become the new grant's, or nobody knows
/// whether it does, it is given back: by its number, so that a record that was rewritten stays.
struct Spare<'a> {
    slot: &'a Slot,
    grant: Option<OverGrant>,
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        self.slot.give_back(self.grant.take());
    }
}

/// Waits for the others that ask about the same resource. Each of them may take its whole time
/// while the store is stuck, and nobody is to wait for the sum of it.
async fn turn(slot: &Slot) -> Result<tokio::sync::MutexGuard<'_, ()>, StoreError> {
    timeout(ANSWER_WITHIN, slot.turn.lock())
        .await
        .map_err(|_| StoreError("others have been waiting for its answer for 10 s".into()))
}

pub(super) async fn answer_within<T>(
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(ANSWER_WITHIN, answer)
        .await
        .unwrap_or_else(|_| Err(StoreError("it took longer than 10 s".into())))
}
