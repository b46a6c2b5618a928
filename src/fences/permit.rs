//! The right to forward one write.

use std::sync::Arc;
use std::time::Duration;

use super::{Slot, Write};
use crate::fence::{Outcome, Rank, Resource, Terms, Token};
use crate::metrics::UNMATCHED_ROUTE;
use crate::store::InstanceLease;

/// The right to forward one write, and the duty to say how it ended. While it exists, no newer
/// token's write is forwarded on its resource. Dropped without a word, the write counts as in doubt.
pub struct Permit {
    slot: Arc<Slot>,
    rank: Rank,
    settle: Duration,
    yields: bool,
    ended: bool,
}

/// Until when a write may be sent.
#[derive(Clone, Debug)]
pub struct Right {
    /// It ends with this, which is to be looked at right before each byte goes out.
    pub lease: Arc<InstanceLease>,
    /// What was given to the kernel before that may still be sent for so long.
    pub settle: Duration,
}

impl Permit {
    pub(super) fn new(slot: Arc<Slot>, rank: Rank, terms: &Terms) -> Permit {
        let Terms { settle, drain, .. } = *terms;
        Permit { slot, rank, settle, yields: drain.is_some(), ended: false }
    }

    /// The resource.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.slot.resource
    }

    /// The token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.rank.token
    }

    /// The write was answered, or no byte of it was sent.
    pub fn over(mut self) {
        self.end(Outcome::Over);
    }

    /// The write was sent at least in part, and nobody knows whether it takes effect.
    pub fn in_doubt(mut self, write: Write) {
        self.end_in_doubt(write);
    }

    /// Whether the write has to stop, because a newer one has waited long enough or the gateway is at
    /// the end of its shutdown. One that cuts nobody only stops for the latter. Worth asking when
    /// [`Fences::cuts`](super::Fences::cuts) has changed.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let is_closed = || self.slot.shared.is_closed();
        self.slot.cell().is_cut(self.rank) && (self.yields || is_closed())
    }

    /// The right to send, where it can run out.
    #[must_use]
    pub fn right(&self) -> Option<Right> {
        let lease = &self.slot.lease;
        let right = || Right { lease: Arc::clone(lease), settle: self.settle };
        lease.is_limited().then(right)
    }

    fn end_in_doubt(&mut self, write: Write) {
        let until = self.slot.shared.clock.now() + self.settle;
        self.end(Outcome::InDoubt(until));
        let route = if write.route.is_empty() { UNMATCHED_ROUTE } else { &*write.route };
        self.slot.shared.metrics.in_doubt(route, write.reason, write.trace_id);
        tracing::warn!(
            resource = %self.slot.resource,
            token = %self.rank.token,
            route = &*write.route,
            upstream = &*write.upstream,
            method = write.method,
            trace_id = write.trace_id.map(display),
            reason = write.reason.as_str(),
            "write in doubt"
        );
        self.slot.shared.doubts.add(self.slot.resource.clone(), self.rank.token, write, until);
    }

    fn end(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let over = {
            let mut cell = self.slot.cell();
            cell.finish(self.rank, outcome);
            if !cell.is_draining() {
                return;
            }
            cell.take_over(self.slot.shared.clock.now())
        };
        self.slot.give_back(over);
        self.slot.changed.notify_waiters();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.ended {
            self.end_in_doubt(Write::default());
        }
    }
}
