//! A gateway on etcd, and what it does when etcd, or its own store, is not what it was.

use serde_json::Value;

use crate::servers::etcd::Etcd;
use crate::support::command::{Ended, fencegate, run};
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, assert_problem};
use crate::support::wait_until;

const LONG_MS: u64 = 3_600_000;

/// Guards `api`, with leases from `etcd`.
fn guard(etcd: &Etcd, api: &Downstream) -> Gateway {
    Gateway::with_config(&format!(
        "[coordinator]\nurl = \"etcd://{}\"\n\
         [[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"1s\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\ndrain = \"1s\"\nwait = \"20s\"\n",
        etcd.endpoints().join(","),
        api.address
    ))
}

/// `fencegate coordinator VERB` with this gateway's address.
fn told(gateway: &Gateway, verb: &str) -> Ended {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = fencegate(directory.path(), &["coordinator", verb]);
    command.args(["--admin", &format!("http://{}", gateway.admin)]);
    run(command)
}

#[track_caller]
fn shown(gateway: &Gateway) -> Value {
    let ended = told(gateway, "show");
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    serde_json::from_str(&ended.stdout).expect("JSON")
}

fn is_alerted(gateway: &Gateway) -> bool {
    let metrics = gateway.admin_text("/metrics");
    metrics.lines().any(|line| line == "fencegate_coordinator_changed 1")
}

/// Waits until etcd's history is marked at a revision above this one.
fn wait_for_mark_above(gateway: &Gateway, revision: u64) {
    wait_until("the history is marked", || {
        shown(gateway)["marked_revision"].as_u64().is_some_and(|marked| marked > revision)
    });
}

#[track_caller]
fn assert_ok(answer: &Answer) {
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_wiped_etcd_stops_new_tokens_until_an_operator_adopts_it() {
    let mut etcd = Etcd::single();
    let api = Downstream::start();
    let gateway = guard(&etcd, &api);
    for _ in 0..20 {
        etcd.ctl(&["put", "other", ""]);
    }
    let a = gateway.acquire("/x", "a", LONG_MS);
    assert_ok(&gateway.put("/x", a, "a"));
    wait_for_mark_above(&gateway, 0);

    etcd.wipe();
    wait_until("the alert", || is_alerted(&gateway));
    let b = gateway.acquire("/x", "b", LONG_MS);
    assert!(b < a, "numbers of before come again");
    let y = gateway.acquire("/y", "b", LONG_MS);
    assert_problem(&gateway.put("/y", y, "y"), 503, "coordinator_changed", "not_forwarded");
    assert_ok(&gateway.put("/x", a, "a, under its grant"));
    assert!(shown(&gateway)["changed"].is_string());

    let adopted = told(&gateway, "adopt");
    assert_eq!((adopted.code, adopted.stderr.as_str()), (Some(0), ""));
    assert!(!is_alerted(&gateway));
    assert_eq!(shown(&gateway)["epoch"], 2);
    assert_ok(&gateway.put("/y", y, "y"));
    assert_ok(&gateway.put("/x", b, "b"));
    let late = gateway.put("/x", a, "a, who is late");
    assert!([403, 412].contains(&late.status), "{late:?}");
    assert_eq!(api.tokens("/x"), [a, a, b]);
    let again = told(&gateway, "adopt");
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("coordinator_unchanged"), "{}", again.stderr);
}

#[test]
fn a_gateway_starts_on_an_etcd_that_was_wiped_so_that_it_can_be_adopted() {
    let mut etcd = Etcd::single();
    let api = Downstream::start();
    let mut gateway = guard(&etcd, &api);
    let a = gateway.acquire("/x", "a", LONG_MS);
    assert_ok(&gateway.put("/x", a, "a"));
    wait_for_mark_above(&gateway, a);
    gateway.stop();
    etcd.wipe();
    gateway.start();
    assert!(is_alerted(&gateway));
    assert_eq!(told(&gateway, "adopt").code, Some(0));
    let b = gateway.acquire("/x", "b", LONG_MS);
    assert_ok(&gateway.put("/x", b, "b"));
}

#[test]
fn a_store_that_was_restored_from_a_backup_lets_no_token_of_then_in() {
    let etcd = Etcd::single();
    let api = Downstream::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (store, backup) = (directory.path().join("store.db"), directory.path().join("backup.db"));
    let config = format!(
        "[coordinator]\nurl = \"etcd://{}\"\n\
         [[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"1s\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\n",
        etcd.endpoints().join(","),
        api.address
    );
    let mut gateway = Gateway::with_store(Some(store.clone()), &config);
    let a = gateway.acquire("/x", "a", LONG_MS);
    assert_ok(&gateway.put("/x", a, "a"));
    wait_for_mark_above(&gateway, 0);
    assert_eq!(gateway.release("/x", "a", a).status, 204);
    let held_on = gateway.acquire("/y", "c", LONG_MS);
    gateway.stop();
    std::fs::copy(&store, &backup).expect("it is closed");

    gateway.start();
    let b = gateway.acquire("/x", "b", LONG_MS);
    assert_ok(&gateway.put("/x", b, "b"));
    assert_eq!(gateway.release("/x", "b", b).status, 204);
    assert_ok(&gateway.put("/y", held_on, "c"));
    wait_for_mark_above(&gateway, b);
    gateway.stop();
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", store.display()));
    }
    std::fs::copy(&backup, &store).expect("the directory is there");

    gateway.start();
    assert!(!is_alerted(&gateway));
    assert_eq!(gateway.mark("/x"), Some(a), "nobody holds it, so what b wrote is not known");
    let zombie = gateway.put("/x", a, "a, who was the holder of the backup");
    assert_problem(&zombie, 403, "fencing_token_not_held", "not_forwarded");
    assert_eq!(gateway.mark("/y"), Some(held_on), "the present holder's");
    assert_ok(&gateway.put("/y", held_on, "c"));
    assert_eq!(api.tokens("/x"), [a, b]);
}

#[test]
fn without_etcd_new_tokens_wait_and_grants_go_on() {
    let mut etcd = Etcd::single();
    let api = Downstream::start();
    let gateway = guard(&etcd, &api);
    let a = gateway.acquire("/x", "a", LONG_MS);
    let b = gateway.acquire("/y", "b", LONG_MS);
    assert_ok(&gateway.put("/x", a, "a"));
    etcd.kill(0);
    assert_ok(&gateway.put("/x", a, "a, under its grant"));
    let refused = gateway.put("/y", b, "b");
    assert_problem(&refused, 503, "coordinator_unavailable", "not_forwarded");
    etcd.start(0);
    wait_until("b is let in", || gateway.put("/y", b, "b").status == 200);
}

#[test]
fn a_store_that_had_etcd_does_not_go_back_to_the_embedded_coordinator() {
    let etcd = Etcd::single();
    let api = Downstream::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = directory.path().join("store.db");
    let config = format!(
        "[coordinator]\nurl = \"etcd://{}\"\n\
         [[upstream]]\nurl = \"http://{}\"\n[[route]]\npath = \"/{{*rest}}\"\n",
        etcd.endpoints().join(","),
        api.address
    );
    Gateway::with_store(Some(store.clone()), &config).stop();
    let any = "127.0.0.1:0";
    let url = format!("sqlite:{}", store.display());
    let upstream = format!("http://{}", api.address);
    let flags = ["serve", "--listen", any, "--leases", any, "--admin", any, "--store", &url];
    let ended =
        run(fencegate(directory.path(), &[&flags[..], &["--upstream", &upstream]].concat()));
    assert_eq!(ended.code, Some(69), "{}", ended.stderr);
    assert!(ended.stderr.contains("take a new store"), "{}", ended.stderr);
}

#[test]
fn the_embedded_coordinator_has_one_history() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    assert_eq!(shown(&gateway), serde_json::json!({"epoch": 1, "changed": null}));
    assert_eq!(told(&gateway, "adopt").code, Some(1));
}
