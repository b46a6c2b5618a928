//! Fence and grants: the transactions of the store, and what an instance hears of them.

use crate::action::Id;
use crate::protocol::{Flaw, Protocol};
use crate::state::{Cell, Instance, State, Token, Write};

impl Protocol {
    /// Raises the mark, records the grant, and answers whether others have older ones: one
    /// transaction. The same again, later, is how an instance finds out that the others are over.
    pub(crate) fn raise(&self, now: State, g: Id, t: Token) -> Option<State> {
        let seen = match now.instances[g].snapshot {
            _ if !now.instances[g].running => return None,
            Some(seen) => seen,
            None if self.has(Flaw::GrantsReadBeforeTheLock) => return None,
            None => now.grants_of_others(g),
        };
        let mut next = self.raise_unheard(now, g, t)?;
        let instance = &mut next.instances[g];
        let others_over = !seen.any_below(t);
        instance.cell = Cell { grant: t, others_over, ..instance.cell };
        instance.snapshot = None;
        Some(next)
    }

    /// A statement sees the grants as they are when it begins, and then waits for the fence's row.
    pub(crate) fn begin_raise(&self, mut next: State, g: Id) -> Option<State> {
        let may = next.instances[g].running && next.instances[g].snapshot.is_none();
        if !may || !self.has(Flaw::GrantsReadBeforeTheLock) {
            return None;
        }
        next.instances[g].snapshot = Some(next.grants_of_others(g));
        Some(next)
    }

    /// The answer is lost, or nobody waits for it any more; the instance may have ended meanwhile.
    pub(crate) fn raise_unheard(&self, now: State, g: Id, t: Token) -> Option<State> {
        if !now.instances[g].is_live() || t < now.mark {
            return None;
        }
        let mut next = self.commit(now);
        next.mark = t;
        next.instances[g].grants.insert(t);
        Some(next)
    }

    /// By notification, by the answer to a renewal, or as a raise is refused for being stale. From
    /// here on it admits nothing older.
    pub(crate) fn hear_of_mark(&self, mut next: State, g: Id) -> Option<State> {
        let grant = next.instances[g].cell.grant;
        if !next.instances[g].is_live() || grant == 0 || grant >= next.mark {
            return None;
        }
        forget_grant(&mut next.instances[g].cell);
        Some(next)
    }

    /// Nobody has written for a while. Should a write come before the grant is known to be deleted,
    /// the instance asks the store first, as after a start.
    pub(crate) fn give_up_idle(&self, mut next: State, g: Id) -> Option<State> {
        let instance = &next.instances[g];
        let grant = instance.cell.grant;
        if !instance.is_live() || grant == 0 || instance.any_write_below(grant + 1) {
            return None;
        }
        if self.has(Flaw::GiveBackOfWhateverGrant) || self.has(Flaw::GrantKeptWhileGivenBack) {
            next.instances[g].giving_back = grant;
        }
        if self.has(Flaw::GrantKeptWhileGivenBack) {
            return Some(next);
        }
        forget_grant(&mut next.instances[g].cell);
        Some(next)
    }

    /// The store deletes a grant that its instance no longer relies on and whose writes are over.
    /// In time, late or never: it names the one record of the grant that is to go, so that it
    /// cannot hit one that was made since.
    pub(crate) fn give_back(&self, now: State, g: Id, t: Token) -> Option<State> {
        if !self.may_give_back(&now.instances[g], t) {
            return None;
        }
        let mut next = self.commit(now);
        next.instances[g].grants.remove(t);
        Some(next)
    }

    /// As above, but it names no record.
    pub(crate) fn late_give_back(&self, now: State, g: Id) -> Option<State> {
        if now.instances[g].giving_back == 0 {
            return None;
        }
        let mut next = self.commit(now);
        let instance = &mut next.instances[g];
        instance.grants.remove(instance.giving_back);
        instance.giving_back = 0;
        Some(next)
    }

    /// All at once, where the search leaves out what being late does.
    pub(crate) fn give_back_all(&self, next: &mut State) {
        for instance in &mut next.instances {
            for t in 1..=self.tokens {
                if self.may_give_back(instance, t) {
                    instance.grants.remove(t);
                }
            }
        }
    }

    fn may_give_back(&self, instance: &Instance, t: Token) -> bool {
        instance.running
            && instance.is_live()
            && instance.grants.contains(t)
            && instance.cell.grant != t
            && self.is_over(instance, t)
    }

    fn is_over(&self, instance: &Instance, t: Token) -> bool {
        match instance.writes[usize::from(t) - 1] {
            Write::Over => true,
            Write::InDoubt { .. } => self.has(Flaw::DoubtNotWaitedFor),
            Write::Admitted | Write::Checked { .. } | Write::Sent { .. } => false,
        }
    }
}

fn forget_grant(cell: &mut Cell) {
    *cell = Cell { grant: 0, others_over: false, ..*cell };
}
