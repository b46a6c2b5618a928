//! Several gateways on one etcd.

use super::*;
use crate::coordinator::contract::{granted, owner, resource, soon, until};

/// Keys that hold a lease or wait for it.
fn claims(server: &Server) -> usize {
    let keys = server.ctl(&["get", "--prefix", "--keys-only", "/fencegate/leases/"]);
    keys.lines().filter(|line| !line.is_empty()).count()
}

#[tokio::test]
async fn an_owner_that_acquires_again_is_not_overtaken_by_one_who_waits_elsewhere() {
    let server = Server::single();
    let (one, other) = (Run::on(&server, Layout::Mutex), Run::on(&server, Layout::Mutex));
    let old = granted(one.etcd.acquire(resource("r"), owner("a"), LONG, NO_WAIT).await);
    let etcd = Arc::new(other.etcd);
    let waiting = Arc::clone(&etcd);
    let wait =
        tokio::spawn(async move { waiting.acquire(resource("r"), owner("b"), LONG, LONG).await });
    until(async || claims(&server) == 2).await;

    let new = granted(one.etcd.acquire(resource("r"), owner("a"), LONG, NO_WAIT).await);
    assert!(new.token > old.token);
    assert_eq!(etcd.holder(resource("r")).await.unwrap().lease.as_ref(), Some(&new));
    // The one who waits has lost its place to the new key, and takes another one behind it.
    until(async || claims(&server) == 2).await;
    assert!(!wait.is_finished());
    one.etcd.release(resource("r"), owner("a"), new.token).await.unwrap();
    assert!(granted(soon(wait).await.unwrap()).token > new.token);
}

#[tokio::test]
async fn a_gateway_renews_and_releases_what_another_one_gave() {
    let server = Server::single();
    let (one, other) = (Run::on(&server, Layout::Mutex), Run::on(&server, Layout::Mutex));
    let lease = granted(one.etcd.acquire(resource("r"), owner("a"), LONG, NO_WAIT).await);
    let shorter = Some(Duration::from_secs(60));
    let renewed = other.etcd.renew(resource("r"), owner("a"), lease.token, shorter).await.unwrap();
    let renewed = renewed.expect("it is live");
    assert_eq!(one.etcd.holder(resource("r")).await.unwrap().lease.as_ref(), Some(&renewed));
    let released = other.etcd.release(resource("r"), owner("a"), lease.token).await.unwrap();
    assert_eq!(released, Released::Released);
    assert_eq!(one.etcd.renew(resource("r"), owner("a"), lease.token, None).await.unwrap(), None);
}

#[tokio::test]
async fn one_of_many_at_many_gateways_holds_at_a_time() {
    let server = Server::single();
    let runs: Vec<_> = (0..3).map(|_| Run::on(&server, Layout::Mutex)).collect();
    let work = (0..12).map(async |number| {
        let (etcd, who) = (&runs[number % 3].etcd, owner(&format!("owner {number}")));
        let lease = granted(etcd.acquire(resource("r"), who.clone(), LONG, LONG).await);
        assert_eq!(etcd.holder(resource("r")).await.unwrap().lease.as_ref(), Some(&lease));
        etcd.release(resource("r"), who, lease.token).await.unwrap();
        lease.token
    });
    let mut tokens = soon(futures_util::future::join_all(work)).await;
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 12);
    until(async || claims(&server) == 0).await;
}

#[tokio::test]
async fn a_wait_that_was_in_vain_leaves_no_key() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let lease = granted(run.etcd.acquire(resource("r"), owner("a"), LONG, NO_WAIT).await);
    let patience = Duration::from_millis(300);
    let held = run.etcd.acquire(resource("r"), owner("b"), LONG, patience).await.unwrap();
    assert!(matches!(held, Acquired::Held(found) if found == lease));
    until(async || claims(&server) == 1).await;
}
