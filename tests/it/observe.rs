//! `mode = "observe"`: everything is judged and nothing changes, until it is told to enforce.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, assert_problem, exchange, raw, send};
use crate::support::wait_until;

/// A drain so short that an enforcing route would cut soon, and a long wait.
const OBSERVE: &str = "mode = \"observe\"\ndrain = \"10ms\"\nwait = \"20s\"\n";

/// Expects a write that went on, was counted under `code`, and was logged as observed.
#[track_caller]
fn assert_observed(gateway: &Gateway, answer: &Answer, code: &str, times: u64) {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(rejections(gateway, code), times, "{code}");
    let refused = |line: &&serde_json::Value| line["code"] == code;
    wait_until("the refusals are logged", || {
        gateway.log().iter().filter(refused).count() as u64 == times
    });
    for line in gateway.log().iter().filter(refused) {
        assert_eq!(line["message"], "request observed", "{line}");
        assert_eq!(line["route"], "all", "{line}");
    }
}

fn rejections(gateway: &Gateway, code: &str) -> u64 {
    let metrics = gateway.admin("/metrics");
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let label = format!("code=\"{code}\"");
    text.lines()
        .filter(|line| line.starts_with("fencegate_rejections_total{") && line.contains(&label))
        .filter(|line| line.contains("route=\"all\""))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[test]
fn what_would_be_refused_is_counted_and_logged_and_reaches_the_api_as_it_came() {
    let api = Downstream::start();
    let gateway = Gateway::with_route(api.address, OBSERVE);
    let a = gateway.acquire("/x", "a", 60_000);
    assert_eq!(gateway.put("/x", a, "a").status, 200);
    gateway.release("/x", "a", a);
    let b = gateway.acquire("/x", "b", 60_000);
    assert_eq!(gateway.put("/x", b, "b").status, 200);

    let stale = gateway.put("/x", a, "late");
    assert_observed(&gateway, &stale, "stale_fencing_token", 1);
    let not_held = gateway.put("/x", b + 7, "forged");
    assert_observed(&gateway, &not_held, "fencing_token_not_held", 1);
    let tokenless = send(gateway.proxy, "PUT", "/x", &[], b"bare");
    assert_observed(&gateway, &tokenless, "fencing_token_required", 1);
    let malformed = send(gateway.proxy, "PUT", "/x", &[("Fencing-Token", "seven")], b"word");
    assert_observed(&gateway, &malformed, "malformed_fencing_token", 1);

    let bodies: Vec<_> = api.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, [&b"a"[..], b"b", b"late", b"forged", b"bare", b"word"]);
    assert_eq!(api.seen()[5].header("fencing-token"), Some("seven"));
    assert_eq!(gateway.mark("/x"), Some(b), "it is kept all the same");
}

#[test]
fn a_newer_write_neither_waits_for_a_slow_older_one_nor_cuts_it() {
    let api = Downstream::start();
    let gateway = Gateway::with_route(api.address, OBSERVE);
    let a = gateway.acquire("/x", "a", 60_000);
    api.behave("/x", Behaviour::Hold);
    let proxy = gateway.proxy;
    let slow = thread::spawn(move || {
        send(proxy, "PUT", "/x", &[("Fencing-Token", &a.to_string())], b"slow")
    });
    api.wait_for(1);
    api.behave("/x", Behaviour::Answer);
    gateway.release("/x", "a", a);
    let b = gateway.acquire("/x", "b", 60_000);

    // Longer than the drain, and than it takes until those that are cut have looked.
    let until = Instant::now() + Duration::from_secs(1);
    let mut newer = 0;
    while Instant::now() < until || newer < 2 {
        let answer = gateway.put("/x", b, "newer");
        newer += 1;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(rejections(&gateway, "fence_draining"), newer);
        assert!(!slow.is_finished());
        thread::sleep(Duration::from_millis(20));
    }

    api.let_go("/x");
    let slow = slow.join().expect("no panic");
    assert_eq!((slow.status, slow.body.as_slice()), (200, &b"done\n"[..]));
    let answer = gateway.put("/x", b, "last");
    assert_observed(&gateway, &answer, "fence_draining", newer);
    let in_doubt = gateway.admin("/v1/in-doubt").json();
    assert_eq!(in_doubt["in_doubt"].as_array().map(Vec::len), Some(0), "{in_doubt}");
    assert_eq!(api.seen().len() as u64, newer + 2);
    assert!(api.seen().iter().all(|seen| seen.is_whole && seen.ended.is_some()));
}

#[test]
fn the_marks_hold_once_it_enforces() {
    let api = Downstream::start();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let start = |mode: &str| {
        Gateway::with_store(
            Some(dir.path().join("fencegate.db")),
            &format!(
                "[[upstream]]\nurl = \"http://{}\"\n\
                 [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\n{mode}",
                api.address
            ),
        )
    };
    let mut observing = start(OBSERVE);
    let a = observing.acquire("/x", "a", 60_000);
    assert_eq!(observing.put("/x", a, "a").status, 200);
    observing.release("/x", "a", a);
    let b = observing.acquire("/x", "b", 60_000);
    assert_eq!(observing.put("/x", b, "b").status, 200);
    assert_eq!(observing.put("/x", a, "late").status, 200);
    assert!(observing.stop().success());

    let enforcing = start("");

    assert_problem(&enforcing.put("/x", a, "late"), 412, "stale_fencing_token", "not_forwarded");
    assert_eq!(enforcing.put("/x", b, "b again").status, 200);
    assert_eq!(api.tokens("/x"), [a, b, a, b]);
}

#[test]
fn refusals_that_need_no_route_are_made_all_the_same() {
    let api = Downstream::start();
    let gateway = Gateway::with_route(api.address, OBSERVE);

    let ambiguous = exchange(gateway.proxy, raw("PUT", b"/x;y", "Fencing-Token: 1\r\n", "x"));

    assert_problem(&ambiguous, 400, "unresolvable_resource", "not_forwarded");
    assert_eq!(api.seen().len(), 0);
}
