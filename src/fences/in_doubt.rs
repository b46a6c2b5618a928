//! The list of writes whose outcome nobody knows, for people to look at.
//!
//! It decides nothing: what makes a newer write wait is in the cells. It is kept in memory and
//! bounded; after a crash the grants that were not given back stand in for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::clock::{Boottime, Clock, WallTime};
use crate::fence::{Resource, Token};
use crate::trace::TraceId;

/// The newest so many are kept.
const KEPT: usize = 10_000;

/// What happened to a write in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub enum DoubtReason {
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The upstream, or the request's body, broke off.
    UpstreamOutcomeUnknown,
    /// The body turned out larger than the route allows when part of it was sent.
    BodyTooLarge,
    /// The upstream answered, and the rest of the body was never sent.
    AnsweredBeforeTheBodyWasSent,
    /// It was cut for a newer token's write, or for the end of the gateway.
    Cut,
    /// The gateway let go of it without a word; an error of the gateway.
    #[default]
    Dropped,
}

impl DoubtReason {
    /// Every reason.
    pub const ALL: [DoubtReason; 6] = [
        DoubtReason::UpstreamTimeout,
        DoubtReason::UpstreamOutcomeUnknown,
        DoubtReason::BodyTooLarge,
        DoubtReason::AnsweredBeforeTheBodyWasSent,
        DoubtReason::Cut,
        DoubtReason::Dropped,
    ];

    /// As logs, lists and metrics call it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            DoubtReason::UpstreamTimeout => "upstream_timeout",
            DoubtReason::UpstreamOutcomeUnknown => "upstream_outcome_unknown",
            DoubtReason::BodyTooLarge => "body_too_large",
            DoubtReason::AnsweredBeforeTheBodyWasSent => "answered_before_the_body_was_sent",
            DoubtReason::Cut => "cut",
            DoubtReason::Dropped => "dropped",
        }
    }
}

impl From<DoubtReason> for &'static str {
    fn from(reason: DoubtReason) -> &'static str {
        reason.as_str()
    }
}

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
    pub trace_id: Option<TraceId>,
    /// What happened to it.
    pub reason: DoubtReason,
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
    pub reason: DoubtReason,
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
            trace_id: write.trace_id.map(|trace_id| trace_id.to_string()).unwrap_or_default(),
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
