//! The list of writes whose outcome nobody knows, for people to look at.
//!
//! It decides nothing: what makes a newer write wait is in the cells. It is kept in memory and
//! bounded; after a crash the grants that were not given back stand in for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::clock::{Boottime, Clock, WallTime};
use crate::fence::{Resource, Token};

/// The newest so many are kept.
const KEPT: usize = 10_000;

/// Which write it was.
#[derive(Clone, Debug, Default)]
pub struct Write {
    /// The route that it matched.
    pub route: Arc<str>,
    /// The upstream that it was sent to.
    pub upstream: Arc<str>,
    /// Its method.
    pub method: String,
    /// Its trace.
    pub trace_id: String,
    /// What happened to it.
    pub reason: &'static str,
}

/// A write in doubt, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct DoubtView {
    /// Its resource.
    pub resource: Resource,
    /// Its token.
    pub token: Token,
    /// The route that it matched.
    pub route: Arc<str>,
    /// The upstream that it was sent to.
    pub upstream: Arc<str>,
    /// Its method.
    pub method: String,
    /// Its trace.
    pub trace_id: String,
    /// What happened to it.
    pub reason: &'static str,
    /// Since when its outcome is unknown.
    pub since: WallTime,
    /// From when on it can no longer take effect.
    pub settles_at: WallTime,
    /// Whether that moment has passed. Whether it took effect before stays unknown.
    pub settled: bool,
}

/// A grant that an earlier run did not give back, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct LeftView {
    /// Its resource.
    pub resource: Resource,
    /// Its token.
    pub token: Token,
    /// From when on its writes can no longer take effect.
    pub settles_at: WallTime,
}

/// The list.
#[derive(Debug)]
pub struct Doubts {
    clock: Clock,
    newest_last: Mutex<VecDeque<(Boottime, DoubtView)>>,
}

impl Doubts {
    pub(super) fn new(clock: Clock) -> Doubts {
        Doubts { clock, newest_last: Mutex::new(VecDeque::new()) }
    }

    pub(super) fn add(&self, resource: Resource, token: Token, write: Write, until: Boottime) {
        let doubt = DoubtView {
            resource,
            token,
            route: write.route,
            upstream: write.upstream,
            method: write.method,
            trace_id: write.trace_id,
            reason: write.reason,
            since: self.clock.wall(),
            settles_at: self.clock.wall_at(until),
            settled: false,
        };
        let mut list = self.newest_last.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back((until, doubt));
    }

    /// The writes, newest first.
    #[must_use]
    pub fn list(&self, limit: usize) -> Vec<DoubtView> {
        let now = self.clock.now();
        let list = self.newest_last.lock().unwrap_or_else(PoisonError::into_inner);
        let newest_first = list.iter().rev().take(limit);
        newest_first
            .map(|(until, doubt)| DoubtView { settled: *until <= now, ..doubt.clone() })
            .collect()
    }

    /// How many can still take effect.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        let now = self.clock.now();
        let list = self.newest_last.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter(|(until, _)| *until > now).count()
    }
}
