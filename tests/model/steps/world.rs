//! Time, and the store's servers.

use crate::action::Id;
use crate::protocol::{Flaw, Protocol};
use crate::state::{Cell, Instance, Record, Standby, State, Write};

impl Protocol {
    /// Time passes for everybody alike; `unseen_by` does not see it.
    pub(crate) fn tick(&self, mut next: State, unseen_by: Option<Id>) -> Option<State> {
        for (g, instance) in next.instances.iter_mut().enumerate() {
            for write in &mut instance.writes {
                *write = self.write_after_tick(*write)?;
            }
            instance.record = self.record_after_tick(instance.record);
            if unseen_by != Some(g) {
                self.clock_ticks(instance);
            }
        }
        Some(next)
    }

    /// A clock that does not count suspension.
    pub(crate) fn tick_unseen_by(&self, now: State, g: Id) -> Option<State> {
        if !self.has(Flaw::ClockStopsInSuspension) || !now.instances[g].running {
            return None;
        }
        self.tick(now, Some(g))
    }

    /// `None`: time cannot pass, for the write has to be sent before.
    fn write_after_tick(&self, write: Write) -> Option<Write> {
        Some(match write {
            Write::Checked { window: 1 } if self.has(Flaw::UnboundedSuspension) => write,
            Write::Checked { window: 1 } => return None,
            Write::Checked { window } => Write::Checked { window: window - 1 },
            Write::Sent { .. } if self.has(Flaw::UncutWritesLiveOn) => write,
            Write::Sent { left: 0 } | Write::InDoubt { left: 0 } => Write::Over,
            Write::Sent { left } => Write::Sent { left: left - 1 },
            Write::InDoubt { left } => Write::InDoubt { left: left - 1 },
            Write::Over | Write::Admitted => write,
        })
    }

    fn record_after_tick(&self, record: Record) -> Record {
        match record {
            Record::Live { unrenewed } => {
                Record::Live { unrenewed: (unrenewed + 1).min(self.bounds.ttl) }
            }
            Record::Fenced { since } => {
                Record::Fenced { since: (since + 1).min(self.bounds.void_after) }
            }
            Record::Void => Record::Void,
        }
    }

    fn clock_ticks(&self, instance: &mut Instance) {
        instance.lease_left = instance.lease_left.saturating_sub(1);
        if self.cut_at_deadline && instance.lease_left == 0 {
            self.cut_all(instance);
        }
        instance.renewed =
            instance.renewed.map(|age| age + 1).filter(|age| *age <= self.bounds.ttl);
    }

    /// A transaction that changes fences or grants. The standby has it before it is confirmed,
    /// unless it is an asynchronous one.
    pub(crate) fn commit(&self, mut next: State) -> State {
        if self.has(Flaw::AsynchronousStandby) {
            let grants = next.instances.map(|instance| instance.grants);
            next.standby = Some(Standby { mark: next.mark, grants });
        }
        next
    }

    /// A synchronous standby that takes over is no action: nothing of it is seen but answers that
    /// are lost.
    pub(crate) fn fail_over(&self, mut next: State) -> Option<State> {
        let standby = next.standby.take()?;
        next.mark = standby.mark;
        for (instance, grants) in next.instances.iter_mut().zip(standby.grants) {
            instance.grants = grants;
            instance.cell.must_reassert = instance.running;
        }
        Some(next)
    }

    /// After the store's server changed: no mark that this instance knows may be missing.
    pub(crate) fn reassert(&self, mut next: State, g: Id) -> Option<State> {
        let Cell { grant, must_reassert: true, .. } = next.instances[g].cell else {
            return None;
        };
        next.mark = next.mark.max(grant);
        next.instances[g].cell.must_reassert = false;
        Some(next)
    }
}
