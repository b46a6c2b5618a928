//! The protocol of several instances (`docs/protocol.md`) as a model, and every state it can reach.
//!
//! A state is what the store has on record, what each instance has in memory, and where each write
//! is. [`action::Action`] names what can happen; `steps` has one function for each, which says when
//! it can happen and what it changes. All that nobody is bound to do may also not happen: an
//! instance that is suspended, cut off from the store or slow is one that does nothing for a while,
//! a notification that is lost is one that is never heard. The searches below take every action in
//! every state, until there are no new ones, and look for a broken promise:
//!
//! - *ordered*: no write is sent, or takes effect at the API, after one with a higher token;
//! - *drained*: when a write is sent, no write with a smaller token can take effect any more.
//!
//! `must_fail` switches off one rule or one assumption at a time and shows that this search would
//! have found it. `walks` shows, step by step, that what ought to go on does.
//!
//! # What is left out, and why that is no loss
//!
//! - **One resource.** Resources share only the leases of the instances. The mark is one number: it
//!   stands for `(epoch, token)`, which is compared as a whole.
//! - **The coordinator.** Any token may turn up on any instance at any time, also one that the
//!   coordinator would refuse.
//! - **One write per instance and token at a time**, of any number one after the other. Writes of
//!   one token don't wait for each other, and it takes two of different tokens to break a promise.
//! - **Time** goes in ticks. A rule says how many ticks something takes at least or at most, and
//!   everything in between happens in any order. All clocks go equally fast; the guard of the lease
//!   is what a real clock may be off.
//! - **Counts of renewals, and who watches whom.** An observer that saw a count for the first time
//!   later than another may fence later, and no more. So the model keeps the ticks since the last
//!   renewal, as if every instance had looked at once; likewise the ticks since an instance was
//!   fenced.
//! - **Answers of the store** to a raise come at once or never. What they say stays true: below a
//!   mark nobody gets a grant, so others that have no older one will have none. A raise without a
//!   grant is one whose grant was given back. A request that is late is one whose action is taken
//!   late.
//! - **Restart.** An instance that starts over is a new one, and an instance that has done nothing
//!   yet is as good as new; so of three that are there from the start, one that ends and another
//!   that first asks then is a restart.
//! - **Fail-over to a synchronous standby** loses answers and connections, and these get lost here
//!   anyway. One to an asynchronous standby is among what must fail.
//! - **Upload in parts.** A write is sent when its last byte is.
//!
//! An instance that gives a grant back late, or hears of its renewal late, can do less than it
//! could in time, and makes others wait. The searches of two instances include that; the one of
//! three leaves it out, to end in time.

#![allow(clippy::panic, reason = "that is how a test fails")]

mod action;
mod must_fail;
mod protocol;
mod search;
mod state;
mod steps;
mod walks;

use protocol::{Bounds, Flaw, Protocol};
use search::finds_no_violation;

#[test]
fn two_instances_keep_the_promise() {
    finds_no_violation("two instances", Protocol::TWO);
}

#[test]
fn two_instances_that_pause_past_their_deadlines_keep_the_promise() {
    let bounds = Bounds::LONG;
    let protocol = Protocol { bounds, late_give_backs: false, ..Protocol::TWO };
    finds_no_violation("two instances, longer times", protocol);
}

#[test]
fn two_instances_whose_renewals_are_answered_late_keep_the_promise() {
    let bounds = Bounds { guard: 0, pause: 0, ..Bounds::LONG };
    let protocol =
        Protocol { tokens: 2, bounds, late_give_backs: false, late_answers: true, ..Protocol::TWO };
    finds_no_violation("two instances, two tokens, late answers", protocol);
}

#[test]
fn three_instances_keep_the_promise() {
    let protocol = Protocol { instances: 3, late_give_backs: false, ..Protocol::TWO };
    finds_no_violation("three instances", protocol);
}

/// If it were so, writes that nobody cuts would not matter.
#[test]
fn the_settle_time_of_cut_writes_is_enough_if_nobody_is_suspended_at_its_deadline() {
    let protocol = Protocol {
        tokens: 2,
        late_give_backs: false,
        cut_at_deadline: true,
        flaw: Some(Flaw::UncutWritesLiveOn),
        ..Protocol::TWO
    };
    finds_no_violation("two instances, two tokens, all cut at the deadline", protocol);
}

#[test]
#[ignore = "takes minutes; see docs/testing.md"]
fn three_instances_with_everything_late_keep_the_promise() {
    let protocol = Protocol { instances: 3, ..Protocol::TWO };
    finds_no_violation("three instances, everything late", protocol);
}

#[test]
#[ignore = "takes minutes; see docs/testing.md"]
fn two_instances_with_everything_late_over_longer_times_keep_the_promise() {
    let protocol = Protocol { bounds: Bounds::LONG, late_answers: true, ..Protocol::TWO };
    finds_no_violation("two instances, longer times, everything late", protocol);
}
