//! Runs a search, and says what it found.

use std::io::Write;

use stateright::{Checker, HasDiscoveries, Model};

use crate::action::Action;
use crate::protocol::{DRAINED, ORDERED, Protocol};
use crate::state::State;

/// Visits every state that can be reached, taking those for one that differ only in which instance
/// is which, and finds no violation.
pub(crate) fn finds_no_violation(what: &str, protocol: Protocol) {
    let found = protocol.checker().symmetry().spawn_dfs().join();
    // Past the capture of tests that pass, for the size belongs to what was shown.
    let states = found.unique_state_count();
    let steps = found.state_count();
    let _ = writeln!(std::io::stderr(), "model: {what}: {states} states, {steps} steps");
    for promise in [ORDERED, DRAINED] {
        if let Some(path) = found.discovery(promise) {
            panic!("it is not true that {promise}:\n{}", told(path.into_actions()));
        }
    }
    // What shall happen at times does: the search went somewhere.
    found.assert_properties();
}

/// Finds a way in which an older write comes after a newer one, and prints it: one of the shortest.
pub(crate) fn finds_violation(what: &str, protocol: Protocol) {
    let search = protocol.checker().finish_when(HasDiscoveries::AnyOf([ORDERED].into()));
    let found = search.spawn_bfs().join();
    let Some(path) = found.discovery(ORDERED) else {
        panic!("{what}: no violation in {} states", found.unique_state_count());
    };
    println!("{what}: it is not true that {ORDERED}:\n{}", told(path.into_actions()));
}

fn told(path: Vec<Action>) -> String {
    path.iter().map(|action| format!("  {action}\n")).collect()
}

/// One way through the protocol, step by step.
pub(crate) struct Walk {
    protocol: Protocol,
    state: State,
}

impl Walk {
    pub(crate) fn of(protocol: Protocol) -> Walk {
        let state = protocol.init_states()[0];
        Walk { protocol, state }
    }

    pub(crate) fn does(&mut self, actions: &[Action]) {
        for action in actions {
            let next = self.protocol.next_state(&self.state, *action);
            self.state = next.unwrap_or_else(|| panic!("cannot be: {action}\n{:#?}", self.state));
            assert_eq!(self.state.broken, None, "{action}");
        }
    }

    pub(crate) fn cannot(&self, action: Action) {
        assert!(self.protocol.next_state(&self.state, action).is_none(), "can be: {action}");
    }
}
