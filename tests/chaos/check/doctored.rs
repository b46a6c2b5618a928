//! A check that cannot fail proves nothing: records that were doctored are caught.

use super::super::notes;
use super::{Record, Violation, violations};

/// Two writes of one token that overlap, a handover, a write that was cut before its effect.
const RECORD: &str = "\
0.100 1 begin /a 10 w1-1.1
0.105 2 begin /a 10 w1-2.2
0.110 1 effect
0.111 2 effect
0.112 2 end answered
0.115 1 end answered
0.120 3 begin /b 7 w3-1.1
0.130 4 begin /a 20 w2-1.1
0.140 4 end dropped
0.150 5 begin /a 20 w2-2.1
0.160 5 effect
0.170 3 effect
0.171 3 end answered
0.180 5 end unanswered
";

const NOTES: &str = "\
w1-1.1 /a 10 sent
w1-2.1 /a 10 sent
w1-2.1 /a 10 not_forwarded 503_fence_draining
w1-2.2 /a 10 sent
w1-1.1 /a 10 done
w1-2.2 /a 10 done
w3-1.1 /b 7 sent
w2-1.1 /a 20 sent
w2-1.1 /a 20 unknown 502_upstream_outcome_unknown
w2-2.1 /a 20 sent
w1-3.1 /a 10 sent
w1-3.1 /a 10 not_forwarded 412_stale_fencing_token
w3-1.1 /b 7 done
";

/// What the check finds when these pieces of the record and the notes are replaced.
fn found(record: &[(&str, &str)], notes: &[(&str, &str)]) -> Vec<Violation> {
    let doctor = |text: &str, pieces: &[(&str, &str)]| {
        pieces.iter().fold(text.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "nothing to doctor: {from}");
            text.replacen(from, to, 1)
        })
    };
    let record = Record::parse(&doctor(RECORD, record));
    violations(&record, &notes::parse(&doctor(NOTES, notes)))
}

#[test]
fn a_kept_promise_is_found_kept() {
    assert_eq!(found(&[], &[]), []);
    assert_eq!(Record::parse(RECORD).handovers(), 1);
}

#[test]
fn a_token_that_goes_back_is_found_even_without_effect() {
    for fate in ["0.191 6 effect\n0.192 6 end answered\n", "0.191 6 end dropped\n"] {
        let late = format!("0.180 5 end unanswered\n0.190 6 begin /a 10 w1-4.1\n{fate}");
        let record = [("0.180 5 end unanswered\n", late.as_str())];
        let notes = [("w3-1.1 /b 7 done\n", "w3-1.1 /b 7 done\nw1-4.1 /a 10 sent\n")];
        let found = found(&record, &notes);
        assert!(matches!(&found[..], [Violation::WentBack { .. }]), "{found:?}");
    }
}

#[test]
fn writes_of_two_tokens_that_overlap_are_found() {
    let late = [("0.115 1 end answered\n", ""), ("0.140 4", "0.135 1 end answered\n0.140 4")];
    let found_late = found(&late, &[]);
    assert!(matches!(&found_late[..], [Violation::Overlap { .. }]), "{found_late:?}");
    // One that never ended overlaps with all that follow.
    let found_open = found(&[("0.115 1 end answered\n", "")], &[]);
    assert_eq!(found_open.len(), 2, "{found_open:?}");
    // On another resource it is no overlap: 3 and 4 are under way together.
    assert_eq!(found(&[], &[]), []);
}

#[test]
fn an_acknowledged_write_without_effect_is_found() {
    let lost = [Violation::Lost { write: "w1-1.1".into() }];
    assert_eq!(found(&[("0.110 1 effect\n", "")], &[]), lost);
    let never_came = found(
        &[
            ("0.100 1 begin /a 10 w1-1.1\n", ""),
            ("0.110 1 effect\n", ""),
            ("0.115 1 end answered\n", ""),
        ],
        &[],
    );
    assert_eq!(never_came, lost);
}

#[test]
fn a_write_that_happened_twice_is_found_even_in_two_attempts() {
    let repeated = |write: &str| [Violation::Repeated { write: write.into() }];
    let again =
        "0.115 1 end answered\n0.116 6 begin /a 10 w1-1.1\n0.117 6 effect\n0.118 6 end answered\n";
    assert_eq!(found(&[("0.115 1 end answered\n", again)], &[]), repeated("w1-1"));
    let first_too = again.replace("w1-1.1", "w1-2.1");
    let record = [("0.115 1 end answered\n", first_too.as_str())];
    let notes = [("w1-2.1 /a 10 not_forwarded 503_fence_draining\n", "")];
    assert_eq!(found(&record, &notes), repeated("w1-2"));
}

#[test]
fn a_write_that_was_called_not_forwarded_and_reached_the_api_is_found() {
    let leak = "0.115 1 end answered\n0.116 6 begin /a 10 w1-3.1\n0.118 6 end dropped\n";
    let found = found(&[("0.115 1 end answered\n", leak)], &[]);
    assert!(matches!(&found[..], [Violation::DeniedYetSent { .. }]), "{found:?}");
}

#[test]
fn a_write_that_nobody_sent_so_is_found() {
    let is_foreign = |found: &[Violation]| {
        found.iter().any(|violation| matches!(violation, Violation::Foreign { .. }))
    };
    assert!(is_foreign(&found(&[("/a 20 w2-2.1", "/a 21 w2-2.1")], &[])));
    assert!(is_foreign(&found(&[("/a 20 w2-2.1", "/b 20 w2-2.1")], &[])));
    assert!(is_foreign(&found(&[("/a 20 w2-2.1", "/a - w2-2.1")], &[])));
    assert!(is_foreign(&found(&[("/a 20 w2-2.1", "/a 20 -")], &[])));
}
