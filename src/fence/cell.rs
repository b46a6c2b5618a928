//! What one instance knows of one resource's fence, and the decisions that follow from it.
//!
//! A cell holds the mark and the *tenures*: for each token that still matters, how many of its
//! writes are in flight and until when one of them may be in doubt. The newest tenure is the grant;
//! older ones are being drained. Invariant: a write is admitted only while its tenure is the only
//! one left, so no older write is under way when a newer one is forwarded.
//!
//! The cell does no I/O and waits for nothing. Where something has to happen first, [`Step`] says
//! what, and the caller comes again.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Epoch, Rank, Token};
use crate::clock::Boottime;

/// Off in no build but the one that `tests/chaos` has to find unsafe.
const DRAINS: bool = !cfg!(feature = "broken-drain");

/// The high-water mark. Orders by epoch, then by token, then a confirmed one above an unconfirmed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The highest token that was accepted, and its epoch.
    pub rank: Rank,
    /// Whether the token was confirmed as the holder's. An operator's raise is not, so that it
    /// admits nobody by itself.
    pub confirmed: bool,
}

/// This instance's right to admit writes of one token, as it is on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The settle time that is recorded with it.
    pub settle: Duration,
    /// Tells this record from an earlier one of the same token: a request to delete that one may arrive
    /// late. Numbers of one process grow.
    pub number: i64,
}

/// A grant whose writes are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverGrant {
    /// The token it admitted.
    pub rank: Rank,
    /// The record; `None` for one that an earlier run left.
    pub number: Option<i64>,
}

/// A grant that an instance which is gone did not give back: writes of it may be in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftGrant {
    /// The token it admitted.
    pub rank: Rank,
    /// The settle time of the upstream its writes went to.
    pub settle: Duration,
}

/// What a write's route says about admission.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The settle time of the upstream.
    pub settle: Duration,
    /// How long older writes in flight may finish before they are cut; `None`: they never are, and
    /// neither is this write.
    pub drain: Option<Duration>,
    /// Whether the coordinator has to confirm a new token (promise 4). Without that its epochs mean
    /// nothing to the write: its tokens are not the coordinator's.
    pub held: bool,
}

/// What is to be done about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is admitted, and counts as in flight from now on.
    Admit,
    /// It is refused: this mark is above its token.
    Stale(Token),
    /// The store has to be read first.
    Load,
    /// The token is new: confirm it as the holder's, then raise the mark.
    Confirm,
    /// The token is the confirmed mark: record the grant for it.
    Grant,
    /// Older writes are not over. Come again when one ends, or at this time if there is one.
    Drain {
        /// The next moment at which time alone changes something.
        again_at: Option<Boottime>,
        /// Writes in flight were cut just now and have to be told.
        cut: bool,
    },
    /// Other instances may have older writes under way. Come again when the store says that none has.
    Elsewhere,
    /// The cell is being given up: wait for the end of that, then look for the cell anew.
    Closing,
}

/// How a write that was in flight ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered, or no byte of it was sent.
    Over,
    /// It was sent at least in part and can take effect until this moment.
    InDoubt(Boottime),
}

/// See the module.
#[derive(Debug)]
pub struct Cell {
    phase: Phase,
    mark: Option<Mark>,
    /// In the order of their tokens. Nearly always just one.
    tenures: SmallVec<[Tenure; 1]>,
    /// A grant that is over, since when, and still on record.
    spare: Option<(OverGrant, Boottime)>,
    /// Other instances may still have grants below the mark.
    elsewhere: bool,
    used_at: Boottime,
    /// When the mark came to be what it is, as far as this instance knows.
    marked_at: Boottime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is known yet.
    Empty,
    /// The store was read.
    Open,
    /// Its grants are being given back; then it is gone.
    Closing,
}

#[derive(Clone, Copy, Debug)]
struct Tenure {
    rank: Rank,
    grant: Option<Grant>,
    in_flight: u32,
    in_doubt_until: Option<Boottime>,
    revoked_at: Option<Boottime>,
    cut: bool,
}

impl Cell {
    /// A cell that knows nothing.
    #[must_use]
    pub fn new(now: Boottime) -> Cell {
        Cell {
            phase: Phase::Empty,
            mark: None,
            tenures: SmallVec::new(),
            spare: None,
            elsewhere: false,
            used_at: now,
            marked_at: now,
        }
    }

    /// Decides about a write with `token`; `epoch` is the coordinator's as far as it is known here.
    pub fn admit(&mut self, token: Token, terms: &Terms, epoch: Epoch, now: Boottime) -> Step {
        self.used_at = now;
        if let Some(step) = self.first_step(token, terms, epoch) {
            return step;
        }
        if DRAINS
            && self.tenures.len() > 1
            && let Some(drain) = self.make_way(terms.drain, now)
        {
            return drain;
        }
        if DRAINS && self.elsewhere {
            return Step::Elsewhere;
        }
        if let Some(newest) = self.tenures.last_mut() {
            newest.in_flight += 1;
        }
        Step::Admit
    }

    /// What has to happen before older writes matter; `None` if `token` has the grant.
    #[must_use]
    pub fn first_step(&self, token: Token, terms: &Terms, epoch: Epoch) -> Option<Step> {
        match self.phase {
            Phase::Open => {}
            Phase::Empty => return Some(Step::Load),
            Phase::Closing => return Some(Step::Closing),
        }
        match self.mark {
            // The token of the mark goes on even in a later epoch, until that one's first holder comes.
            Some(mark) if token == mark.rank.token && mark.confirmed => {}
            // Numbers of an earlier epoch say nothing about a token of this one.
            Some(mark) if token < mark.rank.token && !(terms.held && mark.rank.epoch < epoch) => {
                return Some(Step::Stale(mark.rank.token));
            }
            _ => return Some(Step::Confirm),
        }
        // A grant on record with a shorter settle time would make a crash look over too early.
        match self.tenures.last() {
            Some(newest)
                if Some(newest.rank) == self.rank() && newest.is_recorded_for(terms.settle) =>
            {
                None
            }
            _ => Some(Step::Grant),
        }
    }

    /// Whether tenures below the mark still have to end, cutting those that took longer than `limit`. `None`:
    /// nothing below it is under way any more, here.
    pub fn make_way(&mut self, limit: Option<Duration>, now: Boottime) -> Option<Step> {
        let mark = self.rank();
        let below = self.tenures.partition_point(|tenure| Some(tenure.rank) < mark);
        let mut again_at = None;
        let mut cut = false;
        let mut waiting = false;
        for older in &mut self.tenures[..below] {
            if older.is_over(now) {
                continue;
            }
            waiting = true;
            let next = if older.in_flight == 0 {
                older.in_doubt_until
            } else if older.cut {
                None
            } else {
                let revoked_at = *older.revoked_at.get_or_insert(now);
                let cut_at = limit.map(|limit| revoked_at + limit);
                older.cut = cut_at.is_some_and(|cut_at| cut_at <= now);
                cut |= older.cut;
                cut_at.filter(|_| !older.cut)
            };
            again_at = [again_at, next].into_iter().flatten().min();
        }
        waiting.then_some(Step::Drain { again_at, cut })
    }

    /// Takes in what the store said, and when its mark was raised; `dead_since` is a moment at which every
    /// instance that left a grant was surely gone.
    pub fn loaded(
        &mut self,
        mark: Option<(Mark, Boottime)>,
        left: &[LeftGrant],
        dead_since: Boottime,
    ) {
        if self.phase != Phase::Empty {
            return;
        }
        self.phase = Phase::Open;
        if let Some((mark, marked_at)) = mark
            && self.mark.is_none_or(|known| known < mark)
        {
            (self.mark, self.marked_at) = (Some(mark), marked_at);
        }
        for grant in left {
            let tenure = self.tenure(grant.rank);
            tenure.in_doubt_until = tenure.in_doubt_until.max(Some(dead_since + grant.settle));
        }
    }

    /// Takes in the mark that the store confirmed, and whether other instances had grants below it then.
    /// From now on older tokens are refused here.
    pub fn raised(&mut self, mark: Mark, elsewhere: bool, now: Boottime) {
        if Some(mark) >= self.mark {
            self.elsewhere = elsewhere;
        }
        let known = self.rank();
        self.mark = self.mark.max(Some(mark));
        let rank = self.rank();
        if rank > known {
            self.marked_at = now;
        }
        for tenure in &mut self.tenures {
            if Some(tenure.rank) < rank {
                tenure.revoked_at.get_or_insert(now);
            }
        }
    }

    /// Takes in that the store recorded a grant for a token. It keeps the longest settle time.
    pub fn granted(&mut self, rank: Rank, grant: Grant) {
        let tenure = self.tenure(rank);
        let before = tenure.grant.unwrap_or(grant);
        tenure.grant = Some(Grant {
            settle: before.settle.max(grant.settle),
            number: before.number.max(grant.number),
        });
    }

    /// Takes in that the store was asked for grants of other instances below `rank`, and had none. None
    /// can appear after that.
    pub fn nobody_elsewhere(&mut self, rank: Rank) {
        if self.rank() == Some(rank) {
            self.elsewhere = false;
        }
    }

    /// Whether it still matters who elsewhere has grants below `rank`.
    #[must_use]
    pub fn minds_elsewhere(&self, rank: Rank) -> bool {
        self.elsewhere && self.phase == Phase::Open && self.rank() == Some(rank)
    }

    /// A write that was admitted with this token ended.
    pub fn finish(&mut self, rank: Rank, outcome: Outcome) {
        let tenure = self.tenure(rank);
        tenure.in_flight = tenure.in_flight.saturating_sub(1);
        if let Outcome::InDoubt(until) = outcome {
            tenure.in_doubt_until = tenure.in_doubt_until.max(Some(until));
        }
    }

    /// Removes tenures that are below the mark and over. The last one's grant is kept as the spare, whose record
    /// the next raise may take; the others are named, to be given back.
    pub fn take_over(&mut self, now: Boottime) -> SmallVec<[OverGrant; 1]> {
        let mark = self.rank();
        let mut over = SmallVec::new();
        let spare = &mut self.spare;
        self.tenures.retain(|tenure| {
            let keep = Some(tenure.rank) >= mark || !tenure.is_over(now);
            if !keep {
                over.extend(spare.replace((tenure.over(), now)).map(|(before, _)| before));
            }
            keep
        });
        over
    }

    /// Takes the spare out of the cell, if there is one since this moment or before.
    pub fn take_spare(&mut self, since: Boottime) -> Option<OverGrant> {
        self.spare.take_if(|(_, its_since)| *its_since <= since).map(|(grant, _)| grant)
    }

    /// Whether the store was read.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.phase != Phase::Empty
    }

    /// Whether somebody, here or elsewhere, may wait for a write to end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.tenures.first().is_some_and(|oldest| Some(oldest.rank) < self.rank())
    }

    /// Cuts all that is in flight.
    pub fn cut_all(&mut self) {
        for tenure in &mut self.tenures {
            tenure.cut = true;
        }
    }

    /// Whether writes of `token` that are in flight have to stop.
    #[must_use]
    pub fn is_cut(&self, rank: Rank) -> bool {
        self.tenures.iter().any(|tenure| tenure.rank == rank && tenure.cut)
    }

    /// The mark, as far as this instance knows.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// How long the mark has been what it is, as far as this instance knows: how late a write comes that is
    /// stale.
    #[must_use]
    pub fn mark_age(&self, now: Boottime) -> Duration {
        now.since(self.marked_at)
    }

    /// Since when older writes than the mark's have had to end that have not.
    #[must_use]
    pub fn draining_since(&self, now: Boottime) -> Option<Boottime> {
        let mark = self.rank();
        let older = self.tenures.iter().filter(|tenure| Some(tenure.rank) < mark);
        older.filter(|tenure| !tenure.is_over(now)).filter_map(|tenure| tenure.revoked_at).min()
    }

    fn rank(&self) -> Option<Rank> {
        self.mark.map(|mark| mark.rank)
    }

    /// Writes in flight, of whatever token.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.tenures.iter().map(|tenure| tenure.in_flight).sum()
    }

    /// Grants of this instance.
    pub fn grants(&self) -> impl Iterator<Item = (Rank, Grant)> {
        self.tenures.iter().filter_map(|tenure| Some((tenure.rank, tenure.grant?)))
    }

    /// Tokens with writes that are not over: their grants must survive this process.
    pub fn unsettled(&self, now: Boottime) -> impl Iterator<Item = Rank> {
        self.tenures.iter().filter(move |tenure| !tenure.is_over(now)).map(|tenure| tenure.rank)
    }

    /// Puts off the time at which the cell is idle; false if it is being given up already.
    pub fn touch(&mut self, now: Boottime) -> bool {
        self.used_at = now;
        self.phase != Phase::Closing
    }

    /// When somebody last asked.
    #[must_use]
    pub fn used_at(&self) -> Boottime {
        self.used_at
    }

    /// Begins to give the cell up, if nothing is under way, and names the tokens whose grants are
    /// to be deleted. Until that is done no write may be admitted: its grant would be deleted too.
    pub fn close(&mut self, now: Boottime) -> Option<SmallVec<[OverGrant; 1]>> {
        if self.phase == Phase::Closing || self.tenures.iter().any(|tenure| !tenure.is_over(now)) {
            return None;
        }
        self.phase = Phase::Closing;
        let spare = self.take_spare(now);
        Some(self.tenures.iter().map(Tenure::over).chain(spare).collect())
    }

    /// Ends the cell with its instance: what is in flight is cut, and nothing is admitted any more.
    pub fn end(&mut self) {
        self.phase = Phase::Closing;
        self.cut_all();
    }

    /// Forgets everything, so that the store is read again: the grants could not be given back, or
    /// nobody knows whether they were.
    pub fn reopen(&mut self) {
        *self = Cell::new(self.used_at);
    }

    fn tenure(&mut self, rank: Rank) -> &mut Tenure {
        let at = match self.tenures.binary_search_by_key(&rank, |tenure| tenure.rank) {
            Ok(at) => at,
            Err(at) => {
                self.tenures.insert(at, Tenure::new(rank));
                at
            }
        };
        &mut self.tenures[at]
    }
}

impl Tenure {
    const fn new(rank: Rank) -> Tenure {
        Tenure {
            rank,
            grant: None,
            in_flight: 0,
            in_doubt_until: None,
            revoked_at: None,
            cut: false,
        }
    }

    /// Whether a crash would make others wait for so long.
    fn is_recorded_for(&self, settle: Duration) -> bool {
        self.grant.is_some_and(|grant| grant.settle >= settle)
    }

    fn over(&self) -> OverGrant {
        OverGrant { rank: self.rank, number: self.grant.map(|grant| grant.number) }
    }

    fn is_over(&self, now: Boottime) -> bool {
        self.in_flight == 0 && self.in_doubt_until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests;
