//! One holder after the other: what an older token may still do, and when a newer one may begin.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, Connection, request, send};
use crate::support::wait_until;

/// Puts in a thread of its own.
fn put_later(gateway: &Gateway, path: &str, token: u64, body: &str) -> thread::JoinHandle<Answer> {
    let (proxy, path, body) = (gateway.proxy, path.to_owned(), body.to_owned());
    thread::spawn(move || {
        send(proxy, "PUT", &path, &[("Fencing-Token", &token.to_string())], body.as_bytes())
    })
}

/// Leases of a first and a second holder; the first one's is over.
fn two_holders(gateway: &Gateway, resource: &str) -> (u64, u64) {
    let a = gateway.acquire(resource, "a", 60_000);
    let target = format!("?owner=a&token={a}");
    assert_eq!(gateway.lease_api("DELETE", resource, &target, &serde_json::json!({})).status, 204);
    (a, gateway.acquire(resource, "b", 60_000))
}

/// Admits a first write of `a`, then takes the lease over and gives the token of the second holder.
fn hand_over(gateway: &Gateway, resource: &str, a: u64) -> u64 {
    let target = format!("?owner=a&token={a}");
    assert_eq!(gateway.lease_api("DELETE", resource, &target, &serde_json::json!({})).status, 204);
    gateway.acquire(resource, "b", 60_000)
}

fn in_doubt(gateway: &Gateway) -> Vec<serde_json::Value> {
    gateway.admin("/v1/in-doubt").json()["in_doubt"].as_array().expect("a list").clone()
}

#[test]
fn a_worker_that_paused_past_its_lease_is_refused_and_its_bytes_are_nowhere() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let a = gateway.acquire("/x", "a", 200);
    assert_eq!(gateway.put("/x", a, "a1").status, 200);
    wait_until("a's lease expires", || {
        gateway.lease_api("GET", "/x", "", &serde_json::json!({})).status == 404
    });
    let b = gateway.acquire("/x", "b", 60_000);
    assert!(b > a);
    assert_eq!(gateway.put("/x", b, "b1").status, 200);

    let refused = gateway.put("/x", a, "a2");

    assert_eq!((refused.status, refused.code().as_str()), (412, "stale_fencing_token"));
    let problem = refused.json();
    assert_eq!(problem["outcome"], "not_forwarded");
    assert_eq!(problem["presented_token"], a.to_string());
    assert_eq!(problem["highest_token"], b.to_string());
    assert_eq!(problem["resource"], "/x");
    assert_eq!(problem["trace_id"].as_str().map(str::len), Some(32));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    let bodies: Vec<_> = api.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, [b"a1", b"b1"]);
}

#[test]
fn a_write_held_in_the_network_until_a_newer_one_was_accepted_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let (a, b) = two_holders(&gateway, "/x");
    let late = request("PUT", "/x", &[("Fencing-Token", &a.to_string())], b"late");
    let mut network = Connection::open(gateway.proxy);
    network.write(&late[..late.len() - 2]);
    assert_eq!(gateway.put("/x", b, "new").status, 200);

    network.write(&late[late.len() - 2..]);

    assert_eq!(network.read().code(), "stale_fencing_token");
    assert_eq!(api.tokens("/x"), [b]);
}

#[test]
fn a_token_that_never_wrote_is_stale_once_the_coordinator_names_a_newer_holder() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let (a, b) = two_holders(&gateway, "/x");

    assert_eq!(gateway.put("/x", a, "a").code(), "stale_fencing_token");

    assert_eq!(gateway.mark("/x"), Some(b), "the mark was raised to the holder's token at once");
    assert_eq!(gateway.put("/x", b, "b").status, 200);
    assert_eq!(api.tokens("/x"), [b]);
}

#[test]
fn a_newer_write_waits_for_the_older_one_at_the_downstream() {
    let api = Downstream::start();
    let gateway = Gateway::with_route(api.address, "drain = \"20s\"\n");
    let a = gateway.acquire("/x", "a", 60_000);
    api.behave("/x", Behaviour::Hold);
    let first = put_later(&gateway, "/x", a, "a");
    api.wait_for(1);
    let b = hand_over(&gateway, "/x", a);
    let second = put_later(&gateway, "/x", b, "b");
    wait_until_known(&gateway, b);

    // From here on b's write only waits for a's. Another write of a's is refused already.
    assert_eq!(gateway.put("/x", a, "a2").code(), "stale_fencing_token");
    assert_eq!(api.seen().len(), 1);
    api.let_go("/x");
    assert_eq!(first.join().expect("no panic").status, 200);
    api.let_go("/x");
    assert_eq!(second.join().expect("no panic").status, 200);

    let seen = api.seen();
    assert_eq!(api.tokens("/x"), [a, b]);
    assert!(seen[1].began >= seen[0].ended.expect("it was answered"));
}

#[test]
fn an_older_write_whose_client_left_is_waited_for_all_the_same() {
    let api = Downstream::start();
    let gateway = Gateway::with_route(api.address, "drain = \"20s\"\n");
    let a = gateway.acquire("/x", "a", 60_000);
    api.behave("/x", Behaviour::Hold);
    let mut client = Connection::open(gateway.proxy);
    client.write(request("PUT", "/x", &[("Fencing-Token", &a.to_string())], b"a"));
    api.wait_for(1);
    drop(client);
    let b = hand_over(&gateway, "/x", a);
    let second = put_later(&gateway, "/x", b, "b");
    wait_until_known(&gateway, b);
    assert_eq!(api.seen().len(), 1);

    api.let_go("/x");
    api.let_go("/x");

    assert_eq!(second.join().expect("no panic").status, 200);
    let seen = api.seen();
    assert!(seen[0].is_whole && seen[1].began >= seen[0].ended.expect("it was answered"));
    assert_eq!(in_doubt(&gateway).len(), 0, "a's write was answered, if not to a");
}

#[test]
fn an_upload_stuck_half_way_is_cut_after_the_drain_and_settled_before_the_newer_write() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let a = gateway.acquire("/x", "a", 60_000);
    let body = vec![b'a'; 300_000];
    let upload = request("PUT", "/x", &[("Fencing-Token", &a.to_string())], &body);
    let mut client = Connection::open(gateway.proxy);
    client.write(&upload[..150_000]);
    api.wait_for(1);
    let b = hand_over(&gateway, "/x", a);
    let started = Instant::now();

    assert_eq!(gateway.put("/x", b, "b").status, 200);

    assert!(started.elapsed() >= Duration::from_secs(3), "drain 1 s and settle 2 s");
    let told = client.read();
    assert_eq!(
        (told.code().as_str(), told.outcome().as_str()),
        ("upstream_outcome_unknown", "unknown")
    );
    let seen = api.seen();
    assert!(!seen[0].is_whole);
    let cut_at = seen[0].ended.expect("its connection was cut");
    assert!(seen[1].began >= cut_at + Duration::from_millis(1900), "settle time after the cut");
    let doubts = in_doubt(&gateway);
    assert_eq!(doubts[0]["token"], a.to_string());
}

#[test]
fn a_downstream_that_never_answers_delays_the_newer_write_by_drain_and_settle_time() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let a = gateway.acquire("/x", "a", 60_000);
    api.behave("/x", Behaviour::Silence);
    let first = put_later(&gateway, "/x", a, "a");
    api.wait_for(1);
    let b = hand_over(&gateway, "/x", a);
    api.behave("/x", Behaviour::Answer);
    let started = Instant::now();

    let second = gateway.put("/x", b, "b");

    assert_eq!(second.status, 200);
    assert!(started.elapsed() >= Duration::from_secs(3));
    let first = first.join().expect("no panic");
    assert_eq!(first.code(), "upstream_outcome_unknown");
    assert_eq!(first.outcome(), "unknown");
    assert_eq!(first.header("x-should-retry"), Some("false"));
    let doubts = in_doubt(&gateway);
    assert_eq!(doubts.len(), 1);
    assert_eq!(doubts[0]["resource"], "/x");
    assert_eq!(doubts[0]["token"], a.to_string());
    assert_eq!(doubts[0]["method"], "PUT");
    assert_eq!(doubts[0]["trace_id"], first.json()["trace_id"]);
    assert_eq!(api.tokens("/x"), [a, b]);
}

#[test]
fn an_upstream_that_is_too_late_leaves_the_write_in_doubt_and_its_own_token_goes_on() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\ntimeout = \"300ms\"\nsettle = \"2s\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\n",
        api.address
    ));
    let a = gateway.acquire("/x", "a", 60_000);
    api.behave("/x", Behaviour::Silence);

    let late = gateway.put("/x", a, "a");

    assert_eq!((late.status, late.code().as_str()), (504, "upstream_timeout"));
    assert_eq!(late.outcome(), "unknown");
    api.behave("/x", Behaviour::Answer);
    let started = Instant::now();
    assert_eq!(gateway.put("/x", a, "again").status, 200, "the same token goes on at once");
    assert!(started.elapsed() < Duration::from_secs(2));
    let b = hand_over(&gateway, "/x", a);
    assert_eq!(gateway.put("/x", b, "b").status, 200);
    let seen = api.seen();
    let given_up = seen[0].ended.expect("cut by the gateway");
    assert!(seen[2].began >= given_up + Duration::from_millis(1900));
}

#[test]
fn after_a_kill_the_same_token_goes_on_at_once_and_a_higher_one_waits_out_the_settle_time() {
    let api = Downstream::start();
    let mut gateway = Gateway::guard(api.address);
    let a = gateway.acquire("/x", "a", 60_000);
    api.behave("/x", Behaviour::Silence);
    let proxy = gateway.proxy;
    let lost = thread::spawn(move || {
        let mut client = Connection::open(proxy);
        client.write(request("PUT", "/x", &[("Fencing-Token", &a.to_string())], b"a"));
        client.try_read()
    });
    api.wait_for(1);
    gateway.kill();
    assert!(lost.join().expect("no panic").is_err());
    api.behave("/x", Behaviour::Answer);
    let restarted = Instant::now();
    gateway.start();
    let left = gateway.admin("/v1/in-doubt").json();
    assert_eq!(left["left_by_crash"][0]["token"], a.to_string());

    assert_eq!(gateway.put("/x", a, "a again").status, 200);
    let b = hand_over(&gateway, "/x", a);
    assert_eq!(gateway.put("/x", b, "b").status, 200);

    let seen = api.seen();
    assert_eq!(api.tokens("/x"), [a, a, b]);
    assert!(seen[1].began < restarted + Duration::from_secs(2), "the same token did not wait");
    assert!(seen[2].began >= restarted + Duration::from_secs(2), "the higher one did");
}

#[test]
fn a_clean_shutdown_gives_grants_back_so_that_nobody_waits() {
    let api = Downstream::start();
    let mut gateway = Gateway::guard(api.address);
    let a = gateway.acquire("/x", "a", 60_000);
    assert_eq!(gateway.put("/x", a, "a").status, 200);
    assert!(gateway.stop().success());
    gateway.start();
    let b = hand_over(&gateway, "/x", a);
    let started = Instant::now();

    assert_eq!(gateway.put("/x", b, "b").status, 200);

    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(gateway.put("/x", a, "a2").code(), "stale_fencing_token");
}

#[test]
fn a_newer_write_gives_up_after_its_wait_and_may_come_again() {
    let api = Downstream::start();
    let gateway = Gateway::with_route(api.address, "drain = \"20s\"\nwait = \"300ms\"\n");
    let a = gateway.acquire("/x", "a", 60_000);
    api.behave("/x", Behaviour::Hold);
    let first = put_later(&gateway, "/x", a, "a");
    api.wait_for(1);
    let b = hand_over(&gateway, "/x", a);

    let refused = gateway.put("/x", b, "b");

    assert_eq!((refused.status, refused.code().as_str()), (503, "fence_draining"));
    assert_eq!(refused.outcome(), "not_forwarded");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.header("x-should-retry"), None);
    api.let_go("/x");
    assert_eq!(first.join().expect("no panic").status, 200);
    api.let_go("/x");
    assert_eq!(gateway.put("/x", b, "b").status, 200);
    assert_eq!(api.tokens("/x"), [a, b]);
}

#[test]
fn older_writes_are_cut_even_if_nobody_waited_when_their_time_was_up() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nurl = \"http://{}\"\ntimeout = \"60s\"\nsettle = \"200ms\"\n\
         [[route]]\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\ndrain = \"300ms\"\n\
         wait = \"20ms\"\n",
        api.address
    ));
    api.behave("/x", Behaviour::Silence);
    let first = put_later(&gateway, "/x", 1, "1");
    api.wait_for(1);
    assert_eq!(gateway.put("/x", 2, "2").code(), "fence_draining");
    thread::sleep(Duration::from_millis(400));

    let second = put_later(&gateway, "/x", 2, "2");

    assert_eq!(first.join().expect("no panic").outcome(), "unknown");
    assert_eq!(second.join().expect("no panic").code(), "fence_draining");
    api.behave("/x", Behaviour::Answer);
    wait_until("the settle time is over", || gateway.put("/x", 2, "2").status == 200);
}

#[test]
fn of_several_waiting_tokens_only_the_newest_is_let_in() {
    let api = Downstream::start();
    let gateway = Gateway::with_route(api.address, "tokens = \"ordered\"\ndrain = \"20s\"\n");
    api.behave("/x", Behaviour::Hold);
    let first = put_later(&gateway, "/x", 1, "1");
    api.wait_for(1);
    let second = put_later(&gateway, "/x", 2, "2");
    wait_until("2 is the mark", || gateway.mark("/x") == Some(2));
    let third = put_later(&gateway, "/x", 3, "3");
    assert_eq!(second.join().expect("no panic").code(), "stale_fencing_token");

    api.let_go("/x");
    api.let_go("/x");

    assert_eq!(first.join().expect("no panic").status, 200);
    assert_eq!(third.join().expect("no panic").status, 200);
    assert_eq!(api.tokens("/x"), [1, 3]);
}

#[test]
fn writes_of_one_token_pass_in_parallel_and_exactly_once_each() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let a = gateway.acquire("/x", "a", 60_000);
    api.behave("/x", Behaviour::Hold);

    let writes: Vec<_> =
        (0..40).map(|number| put_later(&gateway, "/x", a, &number.to_string())).collect();
    // All of them are there before the first is answered.
    api.wait_for(40);
    for _ in 0..40 {
        api.let_go("/x");
    }

    for write in writes {
        assert_eq!(write.join().expect("no panic").status, 200);
    }
    let mut bodies: Vec<u32> = api
        .seen()
        .iter()
        .map(|seen| String::from_utf8_lossy(&seen.body).parse().expect("a number"))
        .collect();
    bodies.sort_unstable();
    assert_eq!(bodies, (0..40).collect::<Vec<_>>());
}

/// Waits until the gateway itself knows the mark: the store has it a moment earlier.
fn wait_until_known(gateway: &Gateway, mark: u64) {
    let mark = mark.to_string();
    wait_until("the mark is known", || {
        let is_it =
            |line: &serde_json::Value| line["message"] == "mark raised" && line["mark"] == *mark;
        gateway.log().iter().any(is_it)
    });
}
