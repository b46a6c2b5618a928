//! Load that is shed: what is said and logged of it.

use std::sync::atomic::Ordering;

use super::Worker;
use crate::problem::{Code, Problem};

impl Worker {
    /// Counts a connection that is one too many, and puts it into words.
    pub(in crate::gateway) fn refuse_connection(&self, limit: &'static str) -> Problem {
        self.limit_hits.hit(limit);
        if self.is_to_be_logged() {
            let detail = "too many connections are open; try again later";
            return self.refuse_head(Code::Overloaded, &detail);
        }
        self.routes.unmatched.reject(Code::Overloaded, None, self.traces.next());
        Problem::new(Code::Overloaded, "too many connections are open; try again later")
    }

    /// Of the load that is shed one case a second is logged by each thread: lines for all of them would be load of
    /// their own. The metrics have the number.
    pub(super) fn is_to_be_logged(&self) -> bool {
        let second = self.clock.now().as_nanos() / 1_000_000_000;
        self.shed_logged.swap(second, Ordering::Relaxed) != second
    }
}
