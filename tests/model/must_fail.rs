//! Each rule and each assumption without which the promise is broken. A search that cannot find
//! that shows nothing by finding nothing.

use crate::protocol::{Bounds, Flaw, Protocol};
use crate::search::finds_violation;

const TWO_TOKENS: Protocol = Protocol { tokens: 2, ..Protocol::TWO };

fn breaks(what: &str, flaw: Flaw) {
    finds_violation(what, Protocol { flaw: Some(flaw), ..TWO_TOKENS });
}

#[test]
fn without_drain_an_older_write_is_still_under_way() {
    breaks("no drain", Flaw::NoDrain);
}

#[test]
fn unbounded_suspension_between_check_and_send_is_a_window() {
    breaks("unbounded suspension", Flaw::UnboundedSuspension);
}

#[test]
fn grants_of_other_instances_have_to_be_waited_for() {
    breaks("others are not waited for", Flaw::OthersNotWaitedFor);
}

/// As one SQL statement does that locks the fence's row and reads the grants: it sees them as they
/// were when it began.
#[test]
fn a_raise_has_to_read_the_grants_of_others_after_it_has_the_lock() {
    breaks("grants read before the lock", Flaw::GrantsReadBeforeTheLock);
}

#[test]
fn own_older_writes_have_to_be_waited_for() {
    breaks("own older writes are not waited for", Flaw::OwnNotWaitedFor);
}

#[test]
fn a_grant_with_writes_in_doubt_must_not_be_given_back() {
    breaks("doubt is not waited for", Flaw::DoubtNotWaitedFor);
}

#[test]
fn the_deadline_has_to_be_checked_before_each_write() {
    breaks("no deadline check", Flaw::NoDeadlineCheck);
}

#[test]
fn the_deadline_has_to_be_counted_from_the_request() {
    let flaw = Some(Flaw::DeadlineFromAnswer);
    let protocol = Protocol { late_answers: true, flaw, ..TWO_TOKENS };
    finds_violation("deadline from the answer", protocol);
}

#[test]
fn the_clock_has_to_count_suspension() {
    breaks("clock stops in suspension", Flaw::ClockStopsInSuspension);
}

#[test]
fn an_observer_has_to_watch_for_a_whole_ttl_before_it_fences() {
    breaks("fenced too early", Flaw::FencedTooEarly);
}

#[test]
fn a_fenced_instance_must_not_renew() {
    breaks("fenced can renew", Flaw::FencedCanRenew);
}

#[test]
fn grants_must_not_be_voided_as_soon_as_their_instance_is_fenced() {
    let bounds = Bounds { void_after: 0, ..Bounds::SHORT };
    finds_violation("voided at once", Protocol { bounds, ..TWO_TOKENS });
}

/// A suspended instance cuts nothing, nor does a machine without power: it takes longer than the
/// settle time of writes that are cut.
#[test]
fn the_settle_time_of_cut_writes_is_no_measure_for_writes_that_nobody_cuts() {
    let bounds = Bounds { settle: 1, uncut: 2, void_after: 1, ..Bounds::SHORT };
    finds_violation("voided after the settle time", Protocol { bounds, ..TWO_TOKENS });
}

#[test]
fn an_api_that_finishes_uncut_writes_whenever_it_likes_cannot_be_waited_for() {
    breaks("uncut writes live on", Flaw::UncutWritesLiveOn);
}

/// A write that is sent just before its settle time would be over takes effect after it.
#[test]
fn a_pause_past_the_deadline_is_not_covered_by_the_settle_time() {
    let bounds = Bounds { settle: 1, uncut: 1, pause: 1, ..Bounds::SHORT };
    finds_violation("a pause as long as the settle time", Protocol { bounds, ..TWO_TOKENS });
}

#[test]
fn a_grant_that_is_being_given_back_must_not_be_relied_on() {
    breaks("grant kept while given back", Flaw::GrantKeptWhileGivenBack);
}

#[test]
fn giving_back_must_not_delete_a_grant_that_was_recorded_since() {
    breaks("give-back of whatever grant", Flaw::GiveBackOfWhateverGrant);
}

#[test]
fn a_standby_without_the_last_commit_must_not_take_over() {
    breaks("asynchronous standby", Flaw::AsynchronousStandby);
}
