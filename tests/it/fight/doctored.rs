//! A check that cannot fail proves nothing: logs that were doctored are caught.

use super::check::{Note, Traces, Violation};
use super::write::WriteName;
use crate::support::nginx::Timed;

fn write(name: &str, began_ms: u64, ended_ms: u64) -> Timed {
    Timed {
        began_ms,
        ended_ms,
        status: 204,
        method: "PUT".into(),
        target: "/a".into(),
        token: WriteName::parse(name).map(|name| name.token),
        name: name.into(),
    }
}

fn kept() -> Traces {
    let mut traces = Traces {
        log: vec![
            write("1-w1-1-10", 100, 110),
            // Two of one token may overlap.
            write("1-w1-2-10", 105, 120),
            // As close as the clock can tell.
            write("3-w2-1-20", 119, 125),
        ],
        ..Traces::default()
    };
    for name in ["1-w1-1-10", "1-w1-2-10", "3-w2-1-20"] {
        traces.notes.insert(name.into(), Note { status: Some(204) });
    }
    traces.notes.insert("1-w1-3-10".into(), Note { status: Some(412) });
    traces.notes.insert("3-w2-2-10".into(), Note { status: None });
    traces.files.insert("/a".into(), b"3-w2-1-20\n3-w2-1-20\n".to_vec());
    traces
}

/// What the check finds after `doctor` changed traces in which the promise was kept.
fn found(doctor: impl FnOnce(&mut Traces)) -> Vec<Violation> {
    let mut traces = kept();
    doctor(&mut traces);
    traces.violations()
}

#[test]
fn a_kept_promise_is_found_kept() {
    assert_eq!(found(|_| ()), []);
    assert_eq!(kept().handovers(), 1);
}

#[test]
fn a_token_that_goes_back_is_found() {
    let stale = |traces: &mut Traces| {
        traces.log.push(write("1-w1-4-10", 130, 131));
        traces.notes.insert("1-w1-4-10".into(), Note { status: None });
        traces.files.insert("/a".into(), b"1-w1-4-10\n".to_vec());
    };
    let (file, older, newer) = ("/a".into(), "1-w1-4-10".into(), "3-w2-1-20".into());
    assert_eq!(found(stale), [Violation::WentBack { file, older, newer }]);
}

#[test]
fn writes_of_two_tokens_that_overlap_are_found() {
    let early = |traces: &mut Traces| traces.log[2].began_ms = 118;
    let (file, older, newer) = ("/a".into(), "1-w1-2-10".into(), "3-w2-1-20".into());
    assert_eq!(found(early), [Violation::Overlap { file, older, newer }]);
    // Not only with the one just before it.
    let long = |traces: &mut Traces| {
        traces.log[2].began_ms = 90;
        traces.log[2].ended_ms = 200;
    };
    assert_eq!(found(long).len(), 2);
}

#[test]
fn a_write_that_was_confirmed_and_is_not_in_the_log_is_found() {
    let name = String::from("1-w1-2-10");
    let forget = |traces: &mut Traces| drop(traces.log.remove(1));
    assert_eq!(found(forget), [Violation::Lost { name: name.clone() }]);
    let failed = |traces: &mut Traces| traces.log[1].status = 500;
    assert_eq!(found(failed), [Violation::Lost { name }]);
}

#[test]
fn a_write_that_happened_twice_is_found() {
    let twice = |traces: &mut Traces| {
        let again = traces.log[1].clone();
        traces.log.insert(1, again);
    };
    assert_eq!(found(twice), [Violation::Repeated { name: "1-w1-2-10".into() }]);
}

#[test]
fn a_refused_write_that_reached_the_api_is_found_whatever_became_of_it() {
    let leak = |traces: &mut Traces| {
        let mut leaked = write("1-w1-3-10", 112, 113);
        leaked.status = 400;
        traces.log.insert(1, leaked);
    };
    let name = "1-w1-3-10".into();
    assert_eq!(found(leak), [Violation::RefusedYetSent { name, status: 412 }]);
}

#[test]
fn a_write_with_another_token_than_its_workers_is_found() {
    let is_foreign = |found: &[Violation]| {
        found.iter().any(|violation| matches!(violation, Violation::Foreign { .. }))
    };
    assert!(is_foreign(&found(|traces| traces.log[2].token = Some(4))));
    assert!(is_foreign(&found(|traces| traces.log[0].token = None)));
    assert!(is_foreign(&found(|traces| traces.log[0].name = "-".into())));
}

#[test]
fn a_file_that_is_not_its_last_write_is_found() {
    let is_wrong = |found: &[Violation]| matches!(found, [Violation::FileIsNotLastWrite { last, .. }] if last == "3-w2-1-20");
    assert!(is_wrong(&found(|traces| {
        traces.files.insert("/a".into(), b"1-w1-2-10\n".to_vec());
    })));
    assert!(is_wrong(&found(|traces| {
        traces.files.get_mut("/a").expect("it is there").pop();
    })));
    assert!(is_wrong(&found(|traces| traces.files.clear())));
}
