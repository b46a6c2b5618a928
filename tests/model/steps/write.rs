//! A write's life, from admission to its end.

use crate::action::Id;
use crate::protocol::{Flaw, Protocol};
use crate::state::{Instance, Promise, State, Token, Write};

impl Protocol {
    /// The fast path: memory alone decides. The grant is the newest, the deadline is ahead, and all
    /// that is older is over, here and elsewhere.
    pub(crate) fn admit(&self, mut next: State, g: Id, t: Token) -> Option<State> {
        let instance = &mut next.instances[g];
        let cell = instance.cell;
        let others_over =
            cell.others_over || self.has(Flaw::NoDrain) || self.has(Flaw::OthersNotWaitedFor);
        let own_over = !instance.any_write_below(t)
            || self.has(Flaw::NoDrain)
            || self.has(Flaw::OwnNotWaitedFor);
        let may = instance.running
            && (instance.lease_left > 0 || self.has(Flaw::NoDeadlineCheck))
            && cell.grant == t
            && !cell.must_reassert
            && others_over
            && own_over;
        if !may || *instance.write(t) != Write::Over {
            return None;
        }
        *instance.write(t) = Write::Admitted;
        Some(next)
    }

    /// The last look at the clock before write(2). From here to the sending is the window that
    /// `docs/guarantees.md` names.
    pub(crate) fn check_deadline(&self, mut next: State, g: Id, t: Token) -> Option<State> {
        let instance = &mut next.instances[g];
        let lease_left = instance.lease_left;
        let ahead = lease_left > 0 || self.has(Flaw::NoDeadlineCheck);
        if *instance.write(t) != Write::Admitted || !ahead {
            return None;
        }
        *instance.write(t) = Write::Checked { window: lease_left.max(1) + self.bounds.pause };
        Some(next)
    }

    /// The write's last byte leaves.
    pub(crate) fn send(&self, mut next: State, g: Id, t: Token) -> Option<State> {
        let Write::Checked { .. } = *next.instances[g].write(t) else {
            return None;
        };
        *next.instances[g].write(t) = Write::Sent { left: self.bounds.uncut };
        if next.any_newer_write(t) {
            next.broken = Some(Promise::Ordered);
        } else if next.any_older_write(t) {
            next.broken = Some(Promise::Drained);
        }
        Some(next)
    }

    /// The API does it. That nobody is told, or late, only makes others wait longer.
    pub(crate) fn take_effect(&self, mut next: State, g: Id, t: Token) -> Option<State> {
        let write = next.instances[g].write(t);
        let (Write::Sent { .. } | Write::InDoubt { .. }) = *write else {
            return None;
        };
        *write = Write::Over;
        if t < next.last_effect {
            next.broken = Some(Promise::Ordered);
        }
        next.last_effect = next.last_effect.max(t);
        Some(next)
    }

    /// The drain limit, the upstream's timeout, or the deadline of the instance: at any time. One
    /// that passed the last check is beyond reach until it was sent.
    pub(crate) fn cut(&self, mut next: State, g: Id, t: Token) -> Option<State> {
        let instance = &mut next.instances[g];
        if !instance.running {
            return None;
        }
        let write = instance.write(t);
        *write = match *write {
            Write::Admitted => Write::Over,
            Write::Sent { left } => Write::InDoubt { left: left.min(self.bounds.settle) },
            Write::Over | Write::Checked { .. } | Write::InDoubt { .. } => return None,
        };
        Some(next)
    }

    pub(crate) fn cut_all(&self, instance: &mut Instance) {
        for write in &mut instance.writes {
            if let Write::Sent { left } = *write {
                *write = Write::InDoubt { left: left.min(self.bounds.settle) };
            }
        }
    }
}
