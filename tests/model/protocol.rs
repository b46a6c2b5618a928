//! The protocol as a model: its bounds of time, the rules that can be switched off, and the
//! promise.

use stateright::{Model, Property};

use crate::action::Action;
use crate::state::{Instance, Promise, Record, State, Token, Write};

/// What is searched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) instances: usize,
    pub(crate) tokens: Token,
    pub(crate) bounds: Bounds,
    /// Whether a grant that could be given back may stay. It makes others wait, and no more.
    pub(crate) late_give_backs: bool,
    /// Whether answers to renewals may be late or lost. An instance that hears late may do less
    /// than one that hears at once.
    pub(crate) late_answers: bool,
    /// An assumption: nobody is suspended at its deadline, so that all its writes are cut then.
    pub(crate) cut_at_deadline: bool,
    /// The one thing in which it departs from the protocol.
    pub(crate) flaw: Option<Flaw>,
}

/// In ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How long others have to watch an instance that does not renew before they may fence it.
    pub(crate) ttl: u8,
    /// How much earlier than that the instance's own deadline is.
    pub(crate) guard: u8,
    /// How long past its own deadline an instance may be suspended between the last check and
    /// write(2).
    pub(crate) pause: u8,
    /// The API's: how long a write that was cut can take effect.
    pub(crate) settle: u8,
    /// The API's: how long a write can take effect that nobody cuts, since its gateway is suspended
    /// or its machine has no power.
    pub(crate) uncut: u8,
    /// How long others see an instance fenced before they void its grants.
    pub(crate) void_after: u8,
}

impl Bounds {
    /// The shortest in which everything can happen.
    pub(crate) const SHORT: Bounds =
        Bounds { ttl: 1, guard: 0, pause: 0, settle: 0, uncut: 1, void_after: 1 };
    /// With pauses past the deadline, and cuts that shorten something.
    pub(crate) const LONG: Bounds =
        Bounds { ttl: 2, guard: 1, pause: 1, settle: 1, uncut: 2, void_after: 2 };

    /// How long a lease lasts for the instance that has it.
    pub(crate) const fn lease(&self) -> u8 {
        self.ttl - self.guard
    }
}

/// A rule that is broken, or an assumption that is not true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A write is admitted as soon as the mark is raised: check, then forward.
    NoDrain,
    /// Grants of other instances are not waited for; own older writes are.
    OthersNotWaitedFor,
    /// Own older writes are not waited for; grants of other instances are.
    OwnNotWaitedFor,
    /// A grant is given back as soon as its writes are answered or cut.
    DoubtNotWaitedFor,
    /// The raise reads the grants of others before it has the lock on the fence's row.
    GrantsReadBeforeTheLock,
    /// An instance may stay suspended between its last check and its sending for ever.
    UnboundedSuspension,
    /// Writes are admitted and sent without a look at the deadline.
    NoDeadlineCheck,
    /// The deadline is counted from the answer to a renewal, not from its request.
    DeadlineFromAnswer,
    /// The clock of an instance stands still while it is suspended.
    ClockStopsInSuspension,
    /// An instance is fenced by another that has not watched it for the whole TTL.
    FencedTooEarly,
    /// An instance that is fenced can renew its lease.
    FencedCanRenew,
    /// A grant is relied on while its deletion is under way.
    GrantKeptWhileGivenBack,
    /// A grant is deleted by resource, instance and token alone, so also after it was recorded
    /// anew.
    GiveBackOfWhateverGrant,
    /// The API drops only writes that were cut; others it finishes when it likes.
    UncutWritesLiveOn,
    /// The standby is asynchronous and lacks the last commit when it takes over.
    AsynchronousStandby,
}

impl Protocol {
    /// Two instances, with everything that may be late.
    pub(crate) const TWO: Protocol = Protocol {
        instances: 2,
        tokens: 3,
        bounds: Bounds::SHORT,
        late_give_backs: true,
        late_answers: false,
        cut_at_deadline: false,
        flaw: None,
    };

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

pub(crate) const ORDERED: &str = "no write is sent or takes effect after one with a higher token";
pub(crate) const DRAINED: &str = "when a write is sent, every older one is over";
const HANDOVER: &str = "a newer token is written with while another instance lives on";
const SUCCESSION: &str = "the grants of an instance are voided, and another writes on";

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::fresh(self.instances, self.bounds.lease())]
    }

    /// All that may be possible; the function of an action decides whether it is.
    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        use Action::*;
        if state.broken == Some(Promise::Ordered) {
            return;
        }
        actions.push(Tick);
        actions.push(FailOver);
        for g in 0..self.instances {
            for t in 1..=self.tokens {
                actions.extend([Admit(g, t), CheckDeadline(g, t), Send(g, t), TakeEffect(g, t)]);
                actions.extend([Cut(g, t), Raise(g, t), RaiseUnheard(g, t), GiveBack(g, t)]);
            }
            actions.extend([HearOfMark(g), GiveUpIdle(g), LateGiveBack(g), Fence(g), Void(g)]);
            actions.extend([Renew(g), RenewAnsweredLate(g), HearOfRenewal(g), Crash(g)]);
            actions.extend([BeginRaise(g), TickUnseenBy(g), Reassert(g)]);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let now = *state;
        let mut next = match action {
            Action::Admit(g, t) => self.admit(now, g, t),
            Action::CheckDeadline(g, t) => self.check_deadline(now, g, t),
            Action::Send(g, t) => self.send(now, g, t),
            Action::TakeEffect(g, t) => self.take_effect(now, g, t),
            Action::Cut(g, t) => self.cut(now, g, t),
            Action::BeginRaise(g) => self.begin_raise(now, g),
            Action::Raise(g, t) => self.raise(now, g, t),
            Action::RaiseUnheard(g, t) => self.raise_unheard(now, g, t),
            Action::HearOfMark(g) => self.hear_of_mark(now, g),
            Action::GiveBack(g, t) => self.give_back(now, g, t),
            Action::GiveUpIdle(g) => self.give_up_idle(now, g),
            Action::LateGiveBack(g) => self.late_give_back(now, g),
            Action::Renew(g) => self.renew(now, g),
            Action::RenewAnsweredLate(g) => self.renew_answered_late(now, g),
            Action::HearOfRenewal(g) => self.hear_of_renewal(now, g),
            Action::Fence(g) => self.fence(now, g),
            Action::Void(g) => self.void(now, g),
            Action::Crash(g) => self.crash(now, g),
            Action::Tick => self.tick(now, None),
            Action::TickUnseenBy(g) => self.tick_unseen_by(now, g),
            Action::FailOver => self.fail_over(now),
            Action::Reassert(g) => self.reassert(now, g),
        }?;
        if !self.late_give_backs {
            self.give_back_all(&mut next);
        }
        if self.flaw.is_none() {
            self.forget_what_cannot_matter(&mut next);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Protocol>> {
        vec![
            Property::always(ORDERED, |_, state: &State| state.broken != Some(Promise::Ordered)),
            Property::always(DRAINED, |_, state: &State| state.broken != Some(Promise::Drained)),
            Property::sometimes(HANDOVER, |_, state: &State| {
                let live = |g: &&Instance| g.running && g.is_live();
                writes_on(state) && state.instances.iter().filter(live).count() > 1
            }),
            Property::sometimes(SUCCESSION, |protocol: &Protocol, state: &State| {
                let void = |g: &&Instance| g.record == Record::Void;
                let absent = state.instances.len() - protocol.instances;
                writes_on(state) && state.instances.iter().filter(void).count() > absent
            }),
        ]
    }
}

/// Whether a write with the newest token is with the API, after one with an older token was.
fn writes_on(state: &State) -> bool {
    let is_sent = |instance: &Instance| {
        matches!(instance.writes[usize::from(state.mark) - 1], Write::Sent { .. })
    };
    (1..state.mark).contains(&state.last_effect) && state.instances.iter().any(is_sent)
}
