//! Members that die, stand still and come back; watches, auth tokens and certificates.

use rustix::process::Signal;

use super::*;
use crate::coordinator::contract::{granted, owner, resource, soon, until};

/// What a call may take at the most, and a little more.
const CALL: Duration = Duration::from_secs(7);

async fn acquire(run: &Run, name: &str) -> Lease {
    granted(run.etcd.acquire(resource(name), owner("a"), LONG, NO_WAIT).await)
}

async fn holder(run: &Run, name: &str) -> Result<Option<Lease>, CoordinatorError> {
    let asked = tokio::time::timeout(CALL, run.etcd.holder(resource(name)));
    asked.await.expect("every call ends in time").map(|holding| holding.lease)
}

#[tokio::test]
async fn the_next_member_answers_when_one_is_killed_or_stands_still() {
    let mut server = Server::cluster();
    let run = Run::on(&server, Layout::Mutex);
    let lease = acquire(&run, "r").await;
    // The first endpoint is the one that is connected.
    server.kill(0);
    until(async || holder(&run, "r").await.is_ok_and(|found| found.as_ref() == Some(&lease))).await;
    server.start(0);
    server.signal(1, Signal::STOP);
    until(async || holder(&run, "r").await.is_ok_and(|found| found.as_ref() == Some(&lease))).await;
    server.signal(1, Signal::CONT);
    assert!(acquire(&run, "s").await.token > lease.token);
}

#[tokio::test]
async fn a_killed_leader_costs_an_election() {
    let mut server = Server::cluster();
    let run = Run::on(&server, Layout::Mutex);
    let lease = acquire(&run, "r").await;
    server.kill(server.leader());
    assert_eq!(holder(&run, "r").await.unwrap(), Some(lease.clone()));
    let Lease { resource, owner, token, .. } = lease;
    assert!(run.etcd.renew(resource, owner, token, None).await.unwrap().is_some());
}

#[tokio::test]
async fn without_a_quorum_nothing_is_known_in_time_and_all_is_well_afterwards() {
    let mut server = Server::cluster();
    let run = Run::on(&server, Layout::Mutex);
    let lease = acquire(&run, "r").await;
    server.kill(1);
    server.kill(2);
    assert!(matches!(holder(&run, "r").await, Err(CoordinatorError::Unavailable(_))));
    let acquired = run.etcd.acquire(resource("s"), owner("a"), LONG, NO_WAIT);
    let acquired = tokio::time::timeout(CALL * 2, acquired).await.expect("in time");
    assert!(matches!(acquired, Err(CoordinatorError::Unavailable(_))));
    server.start_all();
    until(async || holder(&run, "r").await.is_ok_and(|found| found.as_ref() == Some(&lease))).await;
}

#[tokio::test]
async fn who_waits_goes_on_waiting_over_a_restart() {
    let mut server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let lease = acquire(&run, "r").await;
    let etcd = Arc::new(run.etcd);
    let waiting = Arc::clone(&etcd);
    let wait =
        tokio::spawn(async move { waiting.acquire(resource("r"), owner("b"), LONG, LONG).await });
    until(async || server.ctl(&["get", "--prefix", "--keys-only", "/"]).lines().count() > 2).await;
    server.kill(0);
    server.start(0);
    etcd.release(resource("r"), owner("a"), lease.token).await.unwrap();
    assert!(granted(soon(wait).await.unwrap()).token > lease.token);
}

#[tokio::test]
async fn a_watch_goes_on_where_what_it_had_not_seen_is_compacted_away() {
    let server = Server::single();
    let run = Run::on(&server, Layout::Mutex);
    let revision = acquire(&run, "r").await.token.as_i64();
    acquire(&run, "s").await;
    server.ctl(&["compact", &(revision + 1).to_string()]);
    // Beside the watch that the coordinator has from its start.
    let late = deletions::watch(Arc::clone(&run.etcd.shared), Some(1), CancellationToken::new());
    tokio::spawn(late);
    let short = Duration::from_secs(1);
    granted(run.etcd.acquire(resource("t"), owner("a"), short, NO_WAIT).await);
    until(async || run.count("fencegate_leases_lost_total") == 2.0).await;
}

#[tokio::test]
async fn an_auth_token_that_expired_is_exchanged() {
    let server = Server::with_flags(&["--auth-token-ttl=1"]);
    for arguments in [
        &["user", "add", "root:root"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "leases"],
        &["role", "grant-permission", "leases", "--prefix=true", "readwrite", "/fencegate/leases/"],
        &["user", "add", "fencegate:secret"],
        &["user", "grant-role", "fencegate", "leases"],
        &["auth", "enable"],
    ] {
        server.ctl(arguments);
    }
    let user = |password: &str| {
        Some(EtcdUser { name: "fencegate".to_owned(), password: password.to_owned() })
    };
    let settings = settings(&server, Layout::Mutex);
    let run = Run::with(&EtcdSettings { user: user("secret"), ..settings.clone() });
    let lease = acquire(&run, "r").await;
    let Lease { resource, owner, token, .. } = lease.clone();
    for _ in 0..2 {
        // Longer than a token lives.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let renewed = run.etcd.renew(resource.clone(), owner.clone(), token, None).await.unwrap();
        assert!(renewed.is_some());
    }
    let wrong = Run::with(&EtcdSettings { user: user("wrong"), ..settings.clone() });
    let refused = holder(&wrong, "r").await.unwrap_err().to_string();
    assert!(refused.contains("authentication failed"), "{refused}");
    let nobody = holder(&Run::with(&settings), "r").await.unwrap_err().to_string();
    assert!(nobody.contains("user name is empty"), "{nobody}");
    let elsewhere = EtcdSettings { user: user("secret"), prefix: "/other".to_owned(), ..settings };
    let denied = holder(&Run::with(&elsewhere), "r").await.unwrap_err().to_string();
    assert!(denied.contains("permission denied"), "{denied}");
}

#[tokio::test]
async fn both_sides_show_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::new(directory.path());
    let server = Server::with_tls(&pki.ca, &pki.certificate, &pki.key);
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    let identity = Some((read(&pki.certificate), read(&pki.key)));
    let tls = EtcdTls { ca: read(&pki.ca), identity };
    let settings = settings(&server, Layout::Mutex);
    let run = Run::with(&EtcdSettings { tls: Some(tls.clone()), ..settings.clone() });
    let lease = acquire(&run, "r").await;
    assert_eq!(holder(&run, "r").await.unwrap(), Some(lease));

    let anonymous = EtcdTls { identity: None, ..tls };
    let refused = Run::with(&EtcdSettings { tls: Some(anonymous), ..settings.clone() });
    assert!(holder(&refused, "r").await.is_err());
    let other = tempfile::tempdir().unwrap();
    let ca = read(&Pki::new(other.path()).ca);
    let stranger = EtcdTls { ca, identity: None };
    let refused = Run::with(&EtcdSettings { tls: Some(stranger), ..settings });
    assert!(holder(&refused, "r").await.is_err());
}

/// A CA and one certificate of it, for the server and for its client alike.
struct Pki {
    ca: std::path::PathBuf,
    certificate: std::path::PathBuf,
    key: std::path::PathBuf,
}

impl Pki {
    fn new(directory: &std::path::Path) -> Pki {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(ca, ca_key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        Pki {
            ca: write("ca.pem", &ca_pem),
            certificate: write("cert.pem", &certificate),
            key: write("key.pem", &key.serialize_pem()),
        }
    }
}
