//! The lease of an instance: how it is kept, and what others do when it is not.

use crate::action::Id;
use crate::protocol::{Flaw, Protocol};
use crate::state::{Cell, Record, State, TokenSet, Write};

impl Protocol {
    /// Asked for, committed and answered in one moment.
    pub(crate) fn renew(&self, now: State, g: Id) -> Option<State> {
        if self.late_answers {
            return None;
        }
        let mut next = self.record_renewal(now, g)?;
        next.instances[g].lease_left = self.bounds.lease();
        Some(next)
    }

    /// Committed as it is asked for: that the commit comes later makes the instance's own deadline
    /// earlier, and that of the others later.
    pub(crate) fn renew_answered_late(&self, now: State, g: Id) -> Option<State> {
        if !self.late_answers {
            return None;
        }
        let mut next = self.record_renewal(now, g)?;
        next.instances[g].renewed = Some(0);
        Some(next)
    }

    fn record_renewal(&self, mut next: State, g: Id) -> Option<State> {
        let instance = &mut next.instances[g];
        let may = instance.is_live()
            || (matches!(instance.record, Record::Fenced { .. }) && self.has(Flaw::FencedCanRenew));
        if !instance.running || !may {
            return None;
        }
        if instance.is_live() {
            instance.record = Record::Live { unrenewed: 0 };
        }
        Some(next)
    }

    /// The deadline is counted from before the request was sent, however late the answer.
    pub(crate) fn hear_of_renewal(&self, mut next: State, g: Id) -> Option<State> {
        let instance = &mut next.instances[g];
        let age = instance.renewed.take()?;
        let counted = if self.has(Flaw::DeadlineFromAnswer) { 0 } else { age };
        let left = self.bounds.lease().saturating_sub(counted);
        instance.lease_left = instance.lease_left.max(left);
        Some(next)
    }

    /// Another instance has seen the same count of renewals for a whole TTL, and the transaction
    /// compares that count. From now on this one can neither renew nor raise.
    pub(crate) fn fence(&self, mut next: State, g: Id) -> Option<State> {
        let Record::Live { unrenewed } = next.instances[g].record else {
            return None;
        };
        let waited = unrenewed >= self.bounds.ttl || self.has(Flaw::FencedTooEarly);
        if !waited || !next.has_observer(g) {
            return None;
        }
        next.instances[g].record = Record::Fenced { since: 0 };
        Some(next)
    }

    /// The grants of an instance that was seen fenced for long enough are deleted.
    pub(crate) fn void(&self, now: State, g: Id) -> Option<State> {
        let Record::Fenced { since } = now.instances[g].record else {
            return None;
        };
        if since < self.bounds.void_after || !now.has_observer(g) {
            return None;
        }
        let mut next = self.commit(now);
        next.instances[g].record = Record::Void;
        next.instances[g].grants = TokenSet::NONE;
        Some(next)
    }

    /// The process ends, whether it was killed or found itself fenced: the kernel resets its
    /// connections, and what it knew is gone. It may start over, as another instance.
    pub(crate) fn crash(&self, mut next: State, g: Id) -> Option<State> {
        let instance = &mut next.instances[g];
        if !instance.running {
            return None;
        }
        instance.running = false;
        instance.lease_left = 0;
        instance.renewed = None;
        instance.cell = Cell::default();
        instance.snapshot = None;
        for write in &mut instance.writes {
            if matches!(write, Write::Admitted | Write::Checked { .. }) {
                *write = Write::Over;
            }
        }
        self.cut_all(instance);
        Some(next)
    }

    /// Makes states equal that behave alike: an instance that is not live, and past its deadline,
    /// passes no check any more, and of its grants only the oldest makes anybody wait.
    pub(crate) fn forget_what_cannot_matter(&self, next: &mut State) {
        for instance in &mut next.instances {
            if instance.is_live() || instance.lease_left > 0 {
                continue;
            }
            instance.cell = Cell::default();
            instance.renewed = None;
            instance.grants = instance.grants.lowest();
            for write in &mut instance.writes {
                if *write == Write::Admitted {
                    *write = Write::Over;
                }
            }
        }
    }
}
