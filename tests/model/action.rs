//! What can happen, in the words of `docs/protocol.md`.

use std::fmt;

use crate::state::Token;

/// An instance, by its place in the state.
pub(crate) type Id = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    // A write's life.
    Admit(Id, Token),
    CheckDeadline(Id, Token),
    Send(Id, Token),
    TakeEffect(Id, Token),
    Cut(Id, Token),
    // Fence and grants.
    BeginRaise(Id),
    Raise(Id, Token),
    RaiseUnheard(Id, Token),
    HearOfMark(Id),
    GiveBack(Id, Token),
    GiveUpIdle(Id),
    LateGiveBack(Id),
    // The lease of an instance.
    Renew(Id),
    RenewAnsweredLate(Id),
    HearOfRenewal(Id),
    Fence(Id),
    Void(Id),
    Crash(Id),
    // The world.
    Tick,
    TickUnseenBy(Id),
    FailOver,
    Reassert(Id),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Action::*;
        let (who, what, token) = match *self {
            Admit(g, t) => (Some(g), "admits a write", t),
            CheckDeadline(g, t) => (Some(g), "checks its deadline just before sending", t),
            Send(g, t) => (Some(g), "sends the write", t),
            TakeEffect(g, t) => (Some(g), "'s write takes effect at the API", t),
            Cut(g, t) => (Some(g), "cuts the write", t),
            BeginRaise(g) => (Some(g), "reads the grants, and waits for the fence's row", 0),
            Raise(g, t) => (Some(g), "raises the mark and gets the grant", t),
            RaiseUnheard(g, t) => {
                (Some(g), "raises the mark and gets the grant; the answer is lost", t)
            }
            HearOfMark(g) => (Some(g), "hears of the mark, and of its revoked grants", 0),
            GiveBack(g, t) => (Some(g), "gives the grant back, its writes being over", t),
            GiveUpIdle(g) => (Some(g), "gives its idle cell up, and asks to delete its grant", 0),
            LateGiveBack(g) => (Some(g), "'s grant is deleted, as it asked long ago", 0),
            Renew(g) => (Some(g), "renews its lease in the store", 0),
            RenewAnsweredLate(g) => (Some(g), "renews its lease; the answer is under way", 0),
            HearOfRenewal(g) => (Some(g), "hears that its lease was renewed", 0),
            Fence(g) => (Some(g), "is fenced by another instance", 0),
            Void(g) => (Some(g), "'s grants are voided by another instance", 0),
            Crash(g) => (Some(g), "ends: its connections are reset", 0),
            Tick => (None, "time passes", 0),
            TickUnseenBy(g) => (Some(g), "is suspended, and its clock with it; time passes", 0),
            FailOver => (None, "the standby takes over, without the last commit", 0),
            Reassert(g) => (Some(g), "asserts the mark that it knows", 0),
        };
        if let Some(g) = who {
            write!(f, "{}", ["A", "B", "C"][g])?;
            f.write_str(if what.starts_with('\'') { "" } else { " " })?;
        }
        f.write_str(what)?;
        if token > 0 { write!(f, " (token {token})") } else { Ok(()) }
    }
}
