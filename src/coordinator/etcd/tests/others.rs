//! Leases that other programs hold, as `etcdctl` and the Go package write them.

use super::*;
use crate::coordinator::contract::{granted, owner, resource, soon, until};

/// A key that waits or holds as a Go worker's would.
async fn lock(server: &Server, place: &str, seconds: i64) -> (etcd_client::Client, i64, String) {
    let mut client = etcd_client::Client::connect(server.endpoints(), None).await.unwrap();
    let id = client.lease_grant(seconds, None).await.unwrap().id();
    let key = format!("/fencegate/leases/{place}/{id:x}");
    let options = etcd_client::PutOptions::new().with_lease(id);
    client.put(key.clone(), "", Some(options)).await.unwrap();
    (client, id, key)
}

#[tokio::test]
async fn another_programs_lease_is_shown_by_its_key_with_the_times_of_etcd() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let (mut client, _, key) = lock(&server, "a%2Fb", 60).await;
    let kv = client.get(key.clone(), None).await.unwrap().take_kvs().remove(0);
    let asked = run.etcd.holder(resource("a/b")).await.unwrap().lease.expect("it is held");
    assert_eq!((asked.token.as_i64(), asked.owner.as_str()), (kv.create_revision(), key.as_str()));
    let shown = run.etcd.show(resource("a/b")).await.unwrap().expect("it is held");
    assert_eq!(shown.ttl, Duration::from_secs(60));
    assert!(shown.expires_at > Clock::new().wall() + Duration::from_secs(50));
    assert_eq!(run.etcd.list(None, 10).await.unwrap().len(), 1);
    assert_eq!(run.etcd.holder(resource("a")).await.unwrap().lease, None, "a is not a/b");
}

#[tokio::test]
async fn another_programs_lease_is_not_ours_to_renew_or_release() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    lock(&server, "r", 60).await;
    let Lease { owner, token, .. } = run.etcd.holder(resource("r")).await.unwrap().lease.unwrap();
    assert_eq!(run.etcd.renew(resource("r"), owner.clone(), token, None).await.unwrap(), None);
    let released = run.etcd.release(resource("r"), owner, token).await.unwrap();
    assert_eq!(released, Released::OwnerMismatch);
}

#[tokio::test]
async fn a_waiter_and_another_programs_waiter_go_by_order_of_arrival() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let (mut first, id, _) = lock(&server, "r", 60).await;
    let wait = run.etcd.acquire(resource("r"), owner("b"), LONG, LONG);
    let others = async {
        let keys = async || {
            let all = etcd_client::GetOptions::new().with_prefix();
            first.clone().get("/fencegate/leases/r/", Some(all)).await.unwrap().take_kvs().len()
        };
        until(async || keys().await == 2).await;
        let (_, _, third) = lock(&server, "r", 60).await;
        first.lease_revoke(id).await.unwrap();
        third
    };
    let (acquired, third) = soon(async { tokio::join!(wait, others) }).await;
    let lease = granted(acquired);
    assert_eq!(lease.ttl, LONG, "the time that it waited is none of its TTL");
    assert_eq!(run.etcd.holder(resource("r")).await.unwrap().lease.as_ref(), Some(&lease));
    run.etcd.release(resource("r"), owner("b"), lease.token).await.unwrap();
    let next = run.etcd.holder(resource("r")).await.unwrap().lease.unwrap();
    assert_eq!(next.owner.as_str(), third);
}

#[tokio::test]
async fn an_owner_that_acquires_again_waits_behind_another_program() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let old = granted(run.etcd.acquire(resource("r"), owner("a"), LONG, NO_WAIT).await);
    let (mut client, id, key) = lock(&server, "r", 60).await;
    let again = run.etcd.acquire(resource("r"), owner("a"), LONG, LONG);
    let other = async {
        let holder = async || run.etcd.holder(resource("r")).await.unwrap().lease.unwrap();
        until(async || holder().await.owner.as_str() == key).await;
        client.lease_revoke(id).await.unwrap();
    };
    let (new, ()) = soon(async { tokio::join!(again, other) }).await;
    assert!(granted(new).token > old.token);
}

#[tokio::test]
async fn a_waiter_whose_key_expired_has_acquired_nothing() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let (mut client, id, _) = lock(&server, "r", 60).await;
    let wait = run.etcd.acquire(resource("r"), owner("b"), LONG, LONG);
    let others = async {
        // As if its keepalives had been late: its etcd lease is gone, key and all.
        let all = etcd_client::GetOptions::new().with_prefix();
        let mut waiting = None;
        until(async || {
            let got = client.clone().get("/fencegate/leases/r/", Some(all.clone())).await.unwrap();
            let other = got.kvs().iter().find(|kv| kv.lease() != id).cloned();
            waiting = other.map(|kv| (kv.lease(), kv.create_revision()));
            waiting.is_some()
        })
        .await;
        let (lease, revision) = waiting.unwrap();
        client.lease_revoke(lease).await.unwrap();
        client.lease_revoke(id).await.unwrap();
        revision
    };
    let (acquired, lost) = soon(async { tokio::join!(wait, others) }).await;
    let lease = granted(acquired);
    assert!(lease.token.as_i64() > lost, "a new key with a new token");
    assert_eq!(run.etcd.holder(resource("r")).await.unwrap().lease, Some(lease));
}

#[tokio::test]
async fn a_late_keepalive_revives_nothing() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let lease = granted(run.etcd.acquire(resource("r"), owner("a"), LONG, NO_WAIT).await);
    let (mut client, id, key) = lock(&server, "r", 60).await;
    let kv = client.get("/fencegate/leases/r/", Some(etcd_client::GetOptions::new().with_prefix()));
    let kv = kv.await.unwrap().take_kvs().into_iter().find(|kv| kv.lease() != id).unwrap();
    // It expires, and the other one is the holder, before the renewal is looked at.
    client.lease_revoke(kv.lease()).await.unwrap();
    let renewed = run.etcd.renew(resource("r"), owner("a"), lease.token, None).await.unwrap();
    assert_eq!(renewed, None);
    assert_eq!(run.etcd.holder(resource("r")).await.unwrap().lease.unwrap().owner.as_str(), key);
}

#[tokio::test]
async fn an_expiry_is_counted_and_a_release_is_not() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let short = Duration::from_secs(1);
    let released = granted(run.etcd.acquire(resource("r"), owner("a"), short, NO_WAIT).await);
    run.etcd.release(resource("r"), owner("a"), released.token).await.unwrap();
    granted(run.etcd.acquire(resource("s"), owner("a"), short, NO_WAIT).await);
    until(async || run.count("fencegate_leases_lost_total") > 0.0).await;
    assert_eq!(run.count("fencegate_leases_lost_total"), 1.0);
    assert_eq!(run.count("fencegate_leases_released_total"), 1.0);
}

#[tokio::test]
async fn many_holders_are_asked_for_in_few_requests() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    lock(&server, "r7", 60).await;
    run.etcd.holder(resource("connected")).await.unwrap();
    let asked = (0..250).map(|number| run.etcd.holder(resource(&format!("r{number}"))));
    let before = txns(&server);
    let holders = futures_util::future::try_join_all(asked).await.unwrap();
    let requests = txns(&server) - before;
    assert!(requests <= 4, "{requests} requests");
    let held: Vec<_> = (0..250).filter(|number| holders[*number].lease.is_some()).collect();
    assert_eq!(held, [7]);
}

#[tokio::test]
async fn a_lease_that_was_acquired_here_and_is_gone_is_whoever_came_after_it() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let mut client = etcd_client::Client::connect(server.endpoints(), None).await.unwrap();
    let all = etcd_client::GetOptions::new().with_prefix();
    let holder = async || run.etcd.holder(resource("r")).await.unwrap().lease;
    for (is_behind, is_anew) in [(false, false), (false, true), (true, false), (true, true)] {
        let lease = granted(run.etcd.acquire(resource("r"), owner("a"), LONG, NO_WAIT).await);
        let found = client.get("/fencegate/leases/r/", Some(all.clone())).await.unwrap();
        let key = found.kvs()[0].key().to_vec();
        let next = if is_behind { Some(lock(&server, "r", 60).await.2) } else { None };
        client.delete(key.clone(), None).await.unwrap();
        if is_anew {
            client.put(key.clone(), "somebody", None).await.unwrap();
        }
        let expected = next.or_else(|| is_anew.then(|| "somebody".to_owned()));
        let is_forgotten = async || run.etcd.shared.given.take(&resource("r")).is_none();
        until(is_forgotten).await;
        // As if the watch had not told of it yet, and then as it is.
        let key = String::from_utf8(key).unwrap();
        run.etcd.shared.given.note(&resource("r"), &key, lease.token);
        for _ in 0..2 {
            let found = holder().await;
            assert!(found.as_ref().is_none_or(|found| found.token > lease.token));
            assert_eq!(found.map(|found| found.owner.as_str().to_owned()), expected);
        }
        client
            .delete("/fencegate/leases/r/", Some(etcd_client::DeleteOptions::new().with_prefix()))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_key_that_was_acquired_here_is_asked_for_alone_and_once() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let given = &run.etcd.shared.given;
    let (_, id, _) = lock(&server, "r", 60).await;
    let mut client = etcd_client::Client::connect(server.endpoints(), None).await.unwrap();
    let all = etcd_client::GetOptions::new().with_prefix().with_keys_only();
    let wait = run.etcd.acquire(resource("r"), owner("a"), LONG, LONG);
    let end = async {
        let keys = async || {
            let found = client.clone().get("/fencegate/leases/r/", Some(all.clone())).await;
            found.unwrap().kvs().len()
        };
        until(async || keys().await == 2).await;
        client.lease_revoke(id).await.unwrap();
    };
    let (waited, ()) = soon(async { tokio::join!(wait, end) }).await;
    let waited = granted(waited);
    let first = given.take(&resource("r")).expect("one that waited is known as well");
    assert_eq!(first.token, waited.token);

    let lease = granted(run.etcd.acquire(resource("r"), owner("a"), LONG, NO_WAIT).await);
    let first = given.take(&resource("r")).expect("it is known");
    let holder = async || run.etcd.holder(resource("r")).await.unwrap().lease;
    for (key, requests) in [(first.key.clone(), 1), (format!("{}0", first.key), 2)] {
        given.note(&resource("r"), &key, lease.token);
        let before = txns(&server);
        assert_eq!(holder().await.as_ref(), Some(&lease), "{key}");
        assert_eq!(
            txns(&server),
            before + requests,
            "{key} was asked for, and the place if it is gone"
        );
        assert_eq!(given.take(&resource("r")), None);
    }
}
