//! Exemplars: one observation of a series, with the trace that it belongs to.
//!
//! Owned here: for each bucket, or counter, room for one of them. Invariant: an observation never waits for a
//! scrape or for another observation. A scrape that shows exemplars asks for new ones; the first observation
//! after that is kept, and all others find nothing to do but read a flag. So what a scrape costs the path of a
//! request is bounded by the number of buckets, however many requests there are.
//! Deliberately absent: a choice among observations. Any of a bucket is as slow as the bucket.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::proto::LabelPair;

use crate::clock::{Clock, WallTime};
use crate::trace::TraceId;

/// An observation that is shown with its series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exemplar {
    pub(super) trace_id: TraceId,
    pub(super) value: f64,
    pub(super) at: WallTime,
}

/// Room for one exemplar.
#[derive(Debug)]
pub(super) struct Slot {
    is_wanted: AtomicBool,
    kept: Mutex<Option<Exemplar>>,
}

/// The slots of one series; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    clock: Clock,
    slots: Arc<[Slot]>,
}

/// All slots there are, for the scrape. Clones share them.
#[derive(Clone, Debug)]
pub struct Exemplars {
    clock: Clock,
    /// By the name of the family and the values of its labels.
    by_series: Arc<Mutex<HashMap<(String, String), Slots>>>,
}

impl Slots {
    /// Offers an observation to one of the slots.
    pub(super) fn offer(&self, slot: usize, trace_id: TraceId, value: f64) {
        if let Some(slot) = self.slots.get(slot)
            && slot.is_wanted.load(Ordering::Relaxed)
        {
            slot.keep(Exemplar { trace_id, value, at: self.clock.wall() });
        }
    }

    fn take(&self) -> Vec<Option<Exemplar>> {
        self.slots.iter().map(Slot::take).collect()
    }
}

impl Slot {
    const fn new() -> Slot {
        Slot { is_wanted: AtomicBool::new(true), kept: Mutex::new(None) }
    }

    #[cold]
    fn keep(&self, exemplar: Exemplar) {
        // Of those who come at once one is enough, and none waits.
        if self.is_wanted.swap(false, Ordering::Relaxed)
            && let Ok(mut kept) = self.kept.try_lock()
        {
            *kept = Some(exemplar);
        }
    }

    /// The newest one, and the wish for a newer one.
    fn take(&self) -> Option<Exemplar> {
        let kept = *self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_wanted.store(true, Ordering::Relaxed);
        kept
    }
}

impl Exemplars {
    /// Without any series.
    #[must_use]
    pub fn new(clock: Clock) -> Exemplars {
        Exemplars { clock, by_series: Arc::default() }
    }

    /// The slots of a series, which are made if it is new. `labels` are its values in the order of their names.
    pub(super) fn slots(&self, name: &str, labels: &[&str], count: usize) -> Slots {
        let slots = || Slots {
            clock: self.clock,
            slots: std::iter::repeat_with(Slot::new).take(count).collect(),
        };
        let mut by_series = self.by_series.lock().unwrap_or_else(PoisonError::into_inner);
        by_series.entry((name.to_owned(), labels.join("\0"))).or_insert_with(slots).clone()
    }

    /// The exemplars of a series, by its slots; empty if it never has any.
    pub(super) fn of(&self, name: &str, labels: &[LabelPair]) -> Vec<Option<Exemplar>> {
        let values: Vec<&str> = labels.iter().map(LabelPair::value).collect();
        let slots = {
            let by_series = self.by_series.lock().unwrap_or_else(PoisonError::into_inner);
            by_series.get(&(name.to_owned(), values.join("\0"))).cloned()
        };
        slots.map_or_else(Vec::new, |slots| slots.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceIds;

    #[test]
    fn the_first_observation_after_a_scrape_is_kept() {
        let (exemplars, ids) = (Exemplars::new(Clock::new()), TraceIds::new());
        let slots = exemplars.slots("seconds", &["a"], 2);
        let (first, second, third) = (ids.next(), ids.next(), ids.next());
        let mut label = LabelPair::default();
        label.set_name("route".into());
        label.set_value("a".into());
        let kept = |slot: usize| {
            exemplars.of("seconds", &[label.clone()])[slot].map(|exemplar| exemplar.trace_id)
        };

        slots.offer(0, first, 1.0);
        slots.offer(0, second, 2.0);
        assert_eq!(kept(0), Some(first));
        slots.offer(0, third, 3.0);
        assert_eq!(kept(0), Some(third));
        assert_eq!(kept(0), Some(third), "the last one stays");
        assert_eq!(kept(1), None);
        assert!(exemplars.of("others", &[label.clone()]).is_empty());
        slots.offer(2, first, 1.0);
    }

    #[test]
    fn an_observation_does_not_wait_for_a_scrape() {
        let (exemplars, ids) = (Exemplars::new(Clock::new()), TraceIds::new());
        let slots = exemplars.slots("seconds", &[], 1);
        let being_read = slots.slots[0].kept.lock().unwrap();
        slots.offer(0, ids.next(), 1.0);
        drop(being_read);
        assert_eq!(exemplars.of("seconds", &[]), [None]);
    }
}
