//! Counters of what is not routine, with an exemplar each.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry, Result};

use super::exemplar::{Exemplars, Slots};
use crate::trace::TraceId;

/// One series. Clones share their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Marked {
    counter: IntCounter,
    slots: Slots,
}

/// All series of one name.
#[derive(Clone, Debug)]
pub(crate) struct MarkedCounters {
    name: &'static str,
    counters: IntCounterVec,
    exemplars: Exemplars,
}

impl Marked {
    /// Counts one of the trace; operators have none.
    pub(crate) fn inc(&self, trace_id: Option<TraceId>) {
        self.counter.inc();
        if let Some(trace_id) = trace_id {
            self.slots.offer(0, trace_id, 1.0);
        }
    }
}

impl MarkedCounters {
    /// Registers a family; `labels` in the order of their names, in which they are shown.
    ///
    /// # Errors
    /// The name is registered already.
    pub(super) fn register(
        registry: &Registry,
        exemplars: &Exemplars,
        name: &'static str,
        help: &str,
        labels: &[&str],
    ) -> Result<MarkedCounters> {
        debug_assert!(labels.is_sorted(), "{name}");
        let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
        registry.register(Box::new(counters.clone()))?;
        Ok(MarkedCounters { name, counters, exemplars: exemplars.clone() })
    }

    /// The series of these values, which exists from then on.
    pub(crate) fn series(&self, values: &[&str]) -> Marked {
        Marked {
            counter: self.counters.with_label_values(values),
            slots: self.exemplars.slots(self.name, values, 1),
        }
    }
}
