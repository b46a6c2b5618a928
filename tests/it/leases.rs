//! Leases over HTTP: what late, lost and aborted requests may not do.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, Connection, request};
use crate::support::wait_until;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// The lease of `resource`, as the API shows it.
fn lease(gateway: &Gateway, resource: &str) -> serde_json::Value {
    gateway.lease_api("GET", resource, "", &serde_json::Value::Null).json()
}

/// Lets a's lease expire.
fn expired(gateway: &Gateway, resource: &str) -> u64 {
    let token = gateway.acquire(resource, "a", 150);
    wait_until("a's lease expires", || gateway.holder(resource).is_none());
    token
}

fn acquisition(owner: &str, ttl_ms: u64, wait_ms: u64) -> Vec<u8> {
    let body = serde_json::json!({"owner": owner, "ttl_ms": ttl_ms, "wait_ms": wait_ms});
    request("POST", "/v1/leases/%2Fx", &[JSON], body.to_string().as_bytes())
}

/// Acquisitions that wait, as the metrics count them.
fn waiters(gateway: &Gateway) -> u64 {
    let metrics = gateway.admin_text("/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix("fencegate_lease_waiters "));
    line.and_then(|number| number.parse().ok()).expect("a gauge that is always there")
}

fn token_of(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["token"].as_str().and_then(|token| token.parse().ok()).expect("a token")
}

#[test]
fn a_renewal_and_a_release_after_the_expiry_change_nothing_of_the_next_lease() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let a = expired(&gateway, "/x");
    assert_eq!(gateway.renew("/x", "a", a, 60_000).code(), "lease_lost");
    assert_eq!(gateway.release("/x", "a", a).code(), "lease_not_found");
    let b = gateway.acquire("/x", "b", 60_000);
    let of_b = lease(&gateway, "/x");

    assert_eq!(gateway.renew("/x", "a", a, 60_000).code(), "lease_lost");
    assert_eq!(gateway.renew("/x", "b", a, 60_000).code(), "lease_lost", "the owner is not enough");
    assert_eq!(gateway.renew("/x", "a", b, 60_000).code(), "lease_lost", "nor is the token");
    assert_eq!(gateway.release("/x", "a", a).code(), "owner_mismatch");
    assert_eq!(gateway.release("/x", "b", a).code(), "owner_mismatch");

    assert_eq!(lease(&gateway, "/x"), of_b);
    assert_eq!(gateway.put("/x", b, "b").status, 200);
}

#[test]
fn a_renewal_and_a_release_held_in_the_network_past_the_expiry_change_nothing() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let a = gateway.acquire("/x", "a", 400);
    let body = format!("{{\"owner\":\"a\",\"token\":\"{a}\",\"ttl_ms\":60000}}");
    let renewal = request("POST", "/v1/leases/%2Fx/renew", &[JSON], body.as_bytes());
    let release = request("DELETE", &format!("/v1/leases/%2Fx?owner=a&token={a}"), &[], b"");
    let held = [renewal, release].map(|bytes| {
        let mut network = Connection::open(gateway.leases);
        let (sent, rest) = bytes.split_at(bytes.len() - 2);
        network.write(sent);
        (network, rest.to_vec())
    });
    let b = token_of(&gateway.try_acquire("/x", "b", 60_000, 20_000));
    assert!(b > a);
    let of_b = lease(&gateway, "/x");

    let codes = held.map(|(mut network, rest)| network.write(rest).read().code());

    assert_eq!(codes, ["lease_lost", "owner_mismatch"]);
    assert_eq!(lease(&gateway, "/x"), of_b);
}

#[test]
fn acquisitions_that_are_aborted_leave_gaps_that_grant_nothing() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let a = gateway.acquire("/x", "a", 60_000);
    let mut waiting = Connection::open(gateway.leases);
    waiting.write(acquisition("b", 60_000, 20_000));
    wait_until("b waits", || waiters(&gateway) == 1);
    drop(waiting);
    wait_until("b's place is given up", || waiters(&gateway) == 0);
    assert_eq!(gateway.release("/x", "a", a).status, 204);
    assert_eq!(gateway.holder("/x"), None, "nobody waits any more");
    // Closed at whatever point the acquisition has come to.
    for number in 0..30 {
        let mut client = Connection::open(gateway.leases);
        client.write(acquisition(&format!("w{number}"), 200, 1000));
        drop(client);
    }

    let c = token_of(&gateway.try_acquire("/x", "c", 60_000, 20_000));

    wait_until("all others are gone", || waiters(&gateway) == 0);
    assert_eq!(gateway.holder("/x").as_deref(), Some("c"));
    for token in (a..c).chain(c + 1..c + 40) {
        let refused = gateway.put("/x", token, "gap").code();
        let expected = if token < c { "stale_fencing_token" } else { "fencing_token_not_held" };
        assert_eq!(refused, expected, "{token}, and c has {c}");
    }
    assert_eq!(gateway.mark("/x"), Some(c));
    assert_eq!(gateway.put("/x", c, "c").status, 200);
    assert_eq!(api.tokens("/x"), [c]);
}

#[test]
fn a_gap_grants_nothing_even_while_nobody_holds_the_lease() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let gap = expired(&gateway, "/x");

    assert_eq!(gateway.put("/x", gap, "gap").code(), "fencing_token_not_held");

    assert_eq!(gateway.mark("/x"), None);
    assert_eq!(api.seen().len(), 0);
}

#[test]
fn an_admitted_token_outlives_its_lease_until_a_newer_one_writes_and_never_after() {
    let api = Downstream::start();
    let mut gateway = Gateway::guard(api.address);
    let a = gateway.acquire("/x", "a", 150);
    assert_eq!(gateway.put("/x", a, "admitted").status, 200);
    wait_until("a's lease expires", || gateway.holder("/x").is_none());

    assert_eq!(gateway.put("/x", a, "after the lease").status, 200);
    assert!(gateway.stop().success());
    gateway.start();
    assert_eq!(gateway.put("/x", a, "after a restart").status, 200);
    gateway.kill();
    gateway.start();
    assert_eq!(gateway.put("/x", a, "after a kill").status, 200);
    let b = gateway.acquire("/x", "b", 60_000);
    assert_eq!(gateway.put("/x", b, "newer").status, 200);

    assert_eq!(gateway.put("/x", a, "too late").code(), "stale_fencing_token");
    gateway.kill();
    gateway.start();
    assert_eq!(gateway.put("/x", a, "too late").code(), "stale_fencing_token");
    assert!(gateway.stop().success());
    gateway.start();
    assert_eq!(gateway.put("/x", a, "too late").code(), "stale_fencing_token");
    assert_eq!(api.tokens("/x"), [a, a, a, a, b]);
}

#[test]
fn a_restart_keeps_live_leases_and_the_order_of_tokens_and_revives_no_lease() {
    let api = Downstream::start();
    let mut gateway = Gateway::guard(api.address);
    let kept = gateway.acquire("/kept", "a", 60_000);
    let of_a = lease(&gateway, "/kept");
    let short = gateway.acquire("/short", "a", 300);
    let last = gateway.acquire("/released", "a", 60_000);
    assert_eq!(gateway.release("/released", "a", last).status, 204);
    gateway.kill();
    thread::sleep(std::time::Duration::from_millis(400));

    gateway.start();

    assert_eq!(lease(&gateway, "/kept"), of_a);
    assert_eq!(gateway.put("/kept", kept, "first write after the start").status, 200);
    assert_eq!(gateway.holder("/short"), None);
    assert_eq!(gateway.renew("/short", "a", short, 60_000).code(), "lease_lost");
    assert_eq!(gateway.put("/short", short, "never admitted").code(), "fencing_token_not_held");
    assert!(gateway.acquire("/released", "b", 60_000) > last);
    assert!(gateway.acquire("/short", "b", 60_000) > last);
}

#[test]
fn those_who_wait_get_the_lease_in_the_order_of_their_arrival() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let mut token = gateway.acquire("/x", "holder", 60_000);
    let mut holder = "holder".to_owned();
    let queue: Vec<_> = (0..5)
        .map(|number| {
            let owner = format!("w{number}");
            let mut waiting = Connection::open(gateway.leases);
            waiting.write(acquisition(&owner, 60_000, 20_000));
            wait_until("it waits", || waiters(&gateway) == number + 1);
            (owner, waiting)
        })
        .collect();

    for (owner, mut waiting) in queue {
        assert_eq!(gateway.release("/x", &holder, token).status, 204);
        let next = token_of(&waiting.read());
        assert!(next > token);
        assert_eq!(gateway.holder("/x").as_deref(), Some(owner.as_str()));
        (holder, token) = (owner, next);
    }
}

#[test]
fn of_fifty_workers_that_fight_for_a_lease_one_has_it_at_a_time() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..50 {
            let (gateway, inside) = (&gateway, &inside);
            scope.spawn(move || {
                let owner = format!("w{number}");
                let token = token_of(&gateway.try_acquire("/x", &owner, 20_000, 25_000));
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "{owner} is not alone");
                assert_eq!(gateway.put("/x", token, &owner).status, 200);
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(gateway.release("/x", &owner, token).status, 204);
            });
        }
    });
    let tokens = api.tokens("/x");
    assert_eq!(tokens.len(), 50);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}
