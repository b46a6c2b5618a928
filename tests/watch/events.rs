//! What happens, one thing after the other, each until Prometheus has seen it.

use std::{fs, thread};

use rustix::process::Signal;

use crate::cast::{Cast, LONG_MS, STORY, WAITERS};
use crate::prometheus::Prometheus;
use crate::servers::free_port;
use crate::support::command::{fencegate, run};
use crate::support::downstream::Behaviour;
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, send};
use crate::support::wait_until;

/// How far above the tokens of now an operator raises a mark, so that some scrapes see it: etcd's revisions pass that
/// within seconds.
const BEYOND: u64 = 150;
/// Of leases that are to run out.
const TTL_MS: u64 = 2000;

/// Everything, in an order that leaves the last part of the time shown calm.
pub fn let_everything_happen(cast: &mut Cast, seen: &Prometheus) {
    ordinary_work(seen);
    broken_requests(cast, seen);
    strangers_and_new_configurations(cast, seen);
    another_history(cast, seen);
    lost_leases(cast, seen);
    a_slow_api(cast, seen);
    silence_and_drains(cast, seen);
    api_gone(cast, seen);
    too_many_waiters(cast, seen);
    an_operators_raise(cast, seen);
    a_suspended_gateway(cast, seen);
    store_cut_off(cast, seen);
    coordinator_down(cast, seen);
    let requests = seen.values("sum(fencegate_requests_total{job='fleet'})")[0];
    seen.wait_for(&format!("sum(fencegate_requests_total{{job='fleet'}}) > {}", requests + 300.0));
}

fn ordinary_work(seen: &Prometheus) {
    seen.wait_for("sum(fencegate_requests_total{job='fleet'}) > 200");
    seen.wait_for("sum(fencegate_requests_total{job='alone'}) > 200");
    seen.wait_for("sum(fencegate_leases_released_total{job='fleet'}) > 3");
}

/// Waits until a code was counted at the two gateways that belong together.
fn refused(seen: &Prometheus, code: &str) {
    seen.wait_for(&format!("sum(fencegate_rejections_total{{job='fleet',code='{code}'}}) > 0"));
}

fn write(gateway: &Gateway, path: &str, fields: &[(&str, &str)]) -> Answer {
    send(gateway.proxy, "PUT", path, fields, b"x")
}

fn broken_requests(cast: &Cast, seen: &Prometheus) {
    for gateway in cast.gateways() {
        for _ in 0..30 {
            write(gateway, "/invoices/june", &[]);
            write(gateway, "/invoices/june", &[("Fencing-Token", "007")]);
            write(gateway, "/invoices/june", &[("Fencing-Token", "1"), ("Fencing-Token", "2")]);
            write(gateway, "/accounts/9", &[("Fencing-Token", "900000000")]);
            write(gateway, "/invoices//june", &[("Fencing-Token", "1")]);
            write(gateway, "/nowhere", &[("Fencing-Token", "1")]);
            write(gateway, "/reports/june", &[]);
        }
    }
    for code in [
        "fencing_token_required",
        "malformed_fencing_token",
        "ambiguous_fencing_token",
        "fencing_token_not_held",
        "unresolvable_resource",
        "no_route",
    ] {
        refused(seen, code);
    }
}

/// A web page asks for leases; a configuration is taken over, another one refused.
fn strangers_and_new_configurations(cast: &Cast, seen: &Prometheus) {
    for gateway in cast.gateways() {
        let page = [("Origin", "https://page.example")];
        assert_eq!(send(gateway.leases, "GET", "/v1/leases", &page, b"").status, 403);
        let path = gateway.config_path();
        let good = fs::read_to_string(&path).expect("the configuration");
        fs::write(&path, format!("{good}\nnonsense = 1\n")).expect("a writable directory");
        gateway.signal(Signal::HUP);
        wait_until("the nonsense is refused", || gateway.config_reloads("refused") > 0);
        fs::write(&path, good).expect("a writable directory");
        gateway.signal(Signal::HUP);
        wait_until("it is as before", || gateway.config_reloads("applied") > 0);
    }
    for job in ["fleet", "alone"] {
        seen.wait_for(&format!("sum(fencegate_access_refusals_total{{job='{job}'}}) > 0"));
        seen.wait_for(&format!("min(fencegate_config_reloads_total{{job='{job}'}}) > 0"));
    }
}

fn another_history(cast: &mut Cast, seen: &Prometheus) {
    // Its mark is a rise from one point of the page to the next, so the first one has to be seen for as long.
    seen.wait_for("min(fencegate_coordinator_epoch{job='fleet'} offset 15s) == 1");
    // Else the new history could reach the revision of the old one before anybody looks.
    for _ in 0..200 {
        cast.etcd.ctl(&["put", "other", ""]);
    }
    wait_until("the history is marked", || {
        let told = cast.one.admin("/v1/coordinator").json();
        told["marked_revision"].as_u64().is_some_and(|revision| revision > 200)
    });
    cast.etcd.wipe();
    seen.wait_for("max(fencegate_coordinator_changed{job='fleet'}) == 1");
    wait_until("a new token is refused", || {
        let token = lease(&cast.one, "/invoices/april", "visitor", LONG_MS);
        let answer = cast.one.put("/invoices/april", token, "x");
        answer.status == 503 && answer.code() == "coordinator_changed"
    });
    refused(seen, "coordinator_changed");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = fencegate(directory.path(), &["coordinator", "adopt"]);
    command.args(["--admin", &format!("http://{}", cast.one.admin)]);
    let adopted = run(command);
    assert_eq!(adopted.code, Some(0), "{}", adopted.stderr);
    seen.wait_for("min(fencegate_coordinator_epoch{job='fleet'}) == 2");
}

/// Writes until it is let in: on a loaded machine a gateway may lose its own lease for a moment.
#[track_caller]
fn let_in(gateway: &Gateway, path: &str, token: u64) {
    wait_until("the write is let in", || gateway.put(path, token, "x").status == 200);
}

/// Tries until it has the lease, for the same reason.
#[track_caller]
fn lease(gateway: &Gateway, resource: &str, owner: &str, ttl_ms: u64) -> u64 {
    let mut token = None;
    wait_until("a lease", || {
        let answer = gateway.try_acquire(resource, owner, ttl_ms, 0);
        token = (answer.status == 201).then(|| answer.json()["token"].clone());
        token.is_some()
    });
    let token = token.expect("waited for it");
    token.as_str().and_then(|token| token.parse().ok()).expect("a number")
}

#[track_caller]
fn give_back(gateway: &Gateway, resource: &str, owner: &str, token: u64) {
    wait_until("the lease is over", || gateway.release(resource, owner, token).status < 500);
}

/// A lease that runs out, a renewal that comes too late, and a write that does, too.
fn lost_leases(cast: &Cast, seen: &Prometheus) {
    for (at, gateway) in cast.gateways().into_iter().enumerate() {
        let resources: Vec<_> = (0..4).map(|nth| format!("/invoices/late-{at}-{nth}")).collect();
        let late: Vec<u64> =
            resources.iter().map(|it| lease(gateway, it, "visitor", TTL_MS)).collect();
        for (resource, token) in resources.iter().zip(&late) {
            gateway.put(resource, *token, "in time, if the machine is quick");
        }
        for (resource, token) in resources.iter().zip(late) {
            wait_until("the lease is over", || gateway.holder(resource).is_none());
            wait_until("the renewal is refused", || {
                gateway.renew(resource, "visitor", token, TTL_MS).status == 409
            });
            let newer = lease(gateway, resource, "successor", LONG_MS);
            wait_until("the lease is held", || {
                gateway.try_acquire(resource, "third", LONG_MS, 0).status == 409
            });
            let newest = lease(gateway, resource, "successor", LONG_MS);
            assert!(newest > newer, "the same owner takes another lease");
            let_in(gateway, resource, newest);
            wait_until("the late write is refused", || {
                gateway.put(resource, token, "late").status == 412
            });
        }
    }
    refused(seen, "stale_fencing_token");
    for job in ["fleet", "alone"] {
        for counter in
            ["leases_lost", "leases_superseded", "lease_renewals_failed", "lease_acquisitions_held"]
        {
            seen.wait_for(&format!("sum(fencegate_{counter}_total{{job='{job}'}}) > 0"));
        }
    }
}

fn a_slow_api(cast: &Cast, seen: &Prometheus) {
    let slow = "sum(fencegate_upstream_duration_seconds_count{job='fleet'})
                - sum(fencegate_upstream_duration_seconds_bucket{job='fleet',le='0.1'})";
    let before = seen.values(slow)[0];
    cast.api.behave("/invoices/may", Behaviour::Slow(std::time::Duration::from_millis(700)));
    seen.wait_for(&format!("{slow} > {}", before + 8.0));
    cast.api.behave("/invoices/may", Behaviour::Answer);
}

/// Older writes that the API does not answer: newer ones wait, cut them, and wait until they have settled.
fn silence_and_drains(cast: &Cast, seen: &Prometheus) {
    for (gateway, other) in
        [(&cast.one, &cast.two), (&cast.two, &cast.one), (&cast.alone, &cast.alone)]
    {
        for path in ["/invoices/silent", "/impatient/silent"] {
            let older = lease(gateway, path, "a", LONG_MS);
            let_in(gateway, path, older);
            let before = cast.api.seen().len();
            cast.api.behave(path, Behaviour::Silence);
            thread::scope(|scope| {
                scope.spawn(|| gateway.put(path, older, "older"));
                wait_until("it reached the API", || {
                    cast.api.seen()[before..].iter().any(|it| it.target == path)
                });
                cast.api.behave(path, Behaviour::Answer);
                give_back(gateway, path, "a", older);
                let newer = lease(other, path, "b", LONG_MS);
                other.put(path, newer, "newer");
                give_back(other, path, "b", newer);
            });
        }
    }
    for code in ["upstream_outcome_unknown", "fence_draining"] {
        refused(seen, code);
    }
    seen.wait_for("sum(fencegate_drain_duration_seconds_count{job='fleet'}) > 0");
    seen.wait_for("sum(fencegate_grants_revoked_total{job='fleet'}) > 0");
}

fn api_gone(cast: &Cast, seen: &Prometheus) {
    cast.api.behave("/accounts/11", Behaviour::Silence);
    cast.api.behave("/accounts/12", Behaviour::ResetInstead);
    for gateway in cast.gateways() {
        for path in ["/archive/x", "/accounts/11", "/accounts/12"] {
            let resource = path.replace("/accounts/", "account:");
            let token = lease(gateway, &resource, "visitor", LONG_MS);
            gateway.put(path, token, "x");
            give_back(gateway, &resource, "visitor", token);
        }
    }
    refused(seen, "upstream_unreachable");
    refused(seen, "upstream_timeout");
}

fn too_many_waiters(cast: &Cast, seen: &Prometheus) {
    cast.api.behave("/imports/x", Behaviour::Silence);
    let gateway = &cast.one;
    thread::scope(|scope| {
        scope.spawn(|| gateway.put("/imports/x", 5, "older"));
        wait_until("it reached the API", || cast.api.tokens("/imports/x") == [5]);
        cast.api.behave("/imports/x", Behaviour::Answer);
        for _ in 0..2 * WAITERS {
            scope.spawn(|| gateway.put("/imports/x", 6, "newer"));
        }
    });
    refused(seen, "overloaded");
}

/// Shuts out whoever holds the resource, and those who come next, until tokens have passed the mark.
fn an_operators_raise(cast: &Cast, seen: &Prometheus) {
    let standing = "max(fencegate_token{job='fleet',kind='highest'}) - max(fencegate_token{job='fleet',kind='current'})";
    wait_until("the holder is shut out", || {
        let mark = cast.one.mark(STORY).expect("it was written to");
        let name = percent_encoding::utf8_percent_encode(STORY, percent_encoding::NON_ALPHANUMERIC);
        let body = serde_json::json!({"token": (mark + BEYOND).to_string()}).to_string();
        let json = [("Content-Type", "application/json")];
        send(cast.one.admin, "POST", &format!("/v1/fences/{name}"), &json, body.as_bytes()).status
            == 200
    });
    seen.wait_for(&format!("{standing} > 0"));
}

fn a_suspended_gateway(cast: &Cast, seen: &Prometheus) {
    cast.two.signal(Signal::STOP);
    seen.wait_for("fencegate_instances_fenced_total{job='fleet',instance='gateway-1'} > 0");
    seen.wait_for("up{job='fleet',instance='gateway-2'} == 0");
    cast.two.signal(Signal::CONT);
    seen.wait_for("fencegate_instance_starts_over_total{job='fleet',instance='gateway-2'} > 0");
    wait_until("it serves again", || cast.two.admin("/readyz").status == 200);
}

fn store_cut_off(cast: &Cast, seen: &Prometheus) {
    let token = lease(&cast.two, "/invoices/cut", "visitor", LONG_MS);
    cast.wire.lead_to(free_port());
    wait_until("a new token is refused", || {
        let answer = cast.two.put("/invoices/cut", token, "x");
        answer.status == 503 && answer.code() == "fence_store_unavailable"
    });
    seen.wait_for("fencegate_instance_renewals_failed_total{job='fleet',instance='gateway-2'} > 0");
    refused(seen, "fence_store_unavailable");
    cast.wire.lead_to(cast.database.port());
    let_in(&cast.two, "/invoices/cut", token);
}

fn coordinator_down(cast: &mut Cast, seen: &Prometheus) {
    let token = lease(&cast.one, "/invoices/down", "visitor", LONG_MS);
    cast.etcd.kill(0);
    for _ in 0..5 {
        assert_eq!(cast.one.put("/invoices/down", token, "x").status, 503);
    }
    refused(seen, "coordinator_unavailable");
    cast.etcd.start(0);
    let_in(&cast.one, "/invoices/down", token);
}
