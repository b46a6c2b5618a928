//! At most one line a second about what anybody can cause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Boottime, Clock};

const EVERY: Duration = Duration::from_secs(1);

pub(super) struct Throttle {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: Option<Boottime>,
    held_back: u64,
}

impl Throttle {
    pub(super) fn new(clock: Clock) -> Throttle {
        Throttle { clock, state: Mutex::default() }
    }

    /// How many were held back before this one; `None`: this one is too.
    pub(super) fn pass(&self) -> Option<u64> {
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.next.is_some_and(|next| now < next) {
            state.held_back += 1;
            return None;
        }
        state.next = Some(now + EVERY);
        Some(std::mem::take(&mut state.held_back))
    }
}
