//! What the protocol is for, step by step: that it forbids is no use unless it also lets through.

use crate::action::Action::*;
use crate::protocol::Protocol;
use crate::search::Walk;

const A: usize = 0;
const B: usize = 1;

#[test]
fn a_newer_token_on_another_instance_waits_for_the_write_under_way_and_goes_on() {
    let mut walk = Walk::of(Protocol::TWO);
    walk.does(&[Raise(A, 1), Admit(A, 1), CheckDeadline(A, 1), Send(A, 1)]);
    walk.does(&[Raise(B, 2)]);
    walk.cannot(Admit(B, 2));
    walk.does(&[HearOfMark(A)]);
    walk.cannot(Admit(A, 1));
    walk.cannot(GiveBack(A, 1));
    walk.does(&[TakeEffect(A, 1), GiveBack(A, 1)]);
    walk.cannot(Admit(B, 2));
    walk.does(&[Raise(B, 2), Admit(B, 2), CheckDeadline(B, 2), Send(B, 2)]);
}

#[test]
fn a_newer_token_on_the_same_instance_waits_for_the_write_under_way_and_goes_on() {
    let mut walk = Walk::of(Protocol::TWO);
    walk.does(&[Raise(A, 1), Admit(A, 1), CheckDeadline(A, 1), Send(A, 1), Raise(A, 2)]);
    walk.cannot(Admit(A, 1));
    walk.cannot(Admit(A, 2));
    walk.does(&[Cut(A, 1)]);
    walk.cannot(Admit(A, 2));
    walk.does(&[Tick, Renew(A), Admit(A, 2)]);
}

#[test]
fn after_a_crash_the_same_token_goes_on_at_once_and_a_higher_one_waits() {
    let mut walk = Walk::of(Protocol::TWO);
    walk.does(&[Raise(A, 1), Admit(A, 1), CheckDeadline(A, 1), Send(A, 1), Crash(A)]);
    walk.does(&[Raise(B, 1), Admit(B, 1), CheckDeadline(B, 1), Send(B, 1), TakeEffect(B, 1)]);
    walk.does(&[Raise(B, 2), GiveBack(B, 1)]);
    walk.cannot(Admit(B, 2));
    walk.cannot(Fence(A));
    walk.does(&[Tick, Renew(B), Fence(A)]);
    walk.cannot(Void(A));
    walk.does(&[Tick, Renew(B), Void(A)]);
    walk.cannot(Admit(B, 2));
    walk.does(&[Raise(B, 2), Admit(B, 2), CheckDeadline(B, 2), Send(B, 2)]);
}

#[test]
fn an_instance_that_slept_past_its_lease_sends_nothing_and_cannot_come_back() {
    let mut walk = Walk::of(Protocol::TWO);
    walk.does(&[Raise(A, 1), Admit(A, 1), Tick, Renew(B), Fence(A)]);
    walk.cannot(CheckDeadline(A, 1));
    walk.cannot(Renew(A));
    walk.cannot(Raise(A, 2));
    walk.does(&[Tick, Renew(B), Void(A), Raise(B, 2), Admit(B, 2)]);
}

#[test]
fn a_raise_that_nobody_heard_of_delays_and_forbids_nothing_for_ever() {
    let mut walk = Walk::of(Protocol::TWO);
    walk.does(&[RaiseUnheard(A, 1)]);
    walk.cannot(Admit(A, 1));
    walk.does(&[Raise(B, 2)]);
    walk.cannot(Admit(B, 2));
    walk.does(&[GiveBack(A, 1), Raise(B, 2), Admit(B, 2)]);
}
