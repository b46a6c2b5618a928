mod pooler;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, Weak};

use prometheus::Registry;

use self::pooler::Pooler;
use super::*;
use crate::coordinator::contract::{self, Subject, granted, owner, resource, until};
use crate::servers::{self, postgres};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(150);
const NOW: Duration = Duration::ZERO;

/// A database of its own on a server that the tests which run at the same time share.
#[derive(Clone)]
struct Fresh {
    server: Arc<postgres::Postgres>,
    name: String,
}

impl Fresh {
    fn new() -> Fresh {
        static SERVER: Mutex<Weak<postgres::Postgres>> = Mutex::new(Weak::new());
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let server = shared
            .upgrade()
            .unwrap_or_else(|| Arc::new(postgres::Postgres::start_with("max_connections = 300\n")));
        *shared = Arc::downgrade(&server);
        let name = format!("leases{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        server.sql(&format!("CREATE DATABASE {name}"));
        Fresh { server, name }
    }

    fn at(&self, port: u16) -> PostgresAccess {
        let url = postgres::url_at(port);
        url.replace("/postgres?", &format!("/{}?", self.name)).parse().unwrap()
    }

    fn settings(&self) -> PostgresSettings {
        let access = self.at(self.server.port());
        PostgresSettings { listen: Some(access.clone()), access }
    }

    async fn gateway(&self) -> Gateway {
        Gateway::start(&self.settings()).await.unwrap()
    }
}

/// What one gateway has of the coordinator.
struct Gateway {
    postgres: Arc<Postgres>,
    registry: Registry,
    tasks: TaskTracker,
}

impl Gateway {
    async fn start(settings: &PostgresSettings) -> Result<Gateway, PostgresStartError> {
        let (registry, tasks) = (Registry::new(), TaskTracker::new());
        let metrics = LeaseMetrics::register(&registry).unwrap();
        let postgres = Postgres::start(settings, Clock::new(), &tasks, metrics).await?;
        Ok(Gateway { postgres: Arc::new(postgres), registry, tasks })
    }

    async fn acquire(&self, name: &str, who: &str, ttl: Duration, wait: Duration) -> Lease {
        granted(self.postgres.acquire(resource(name), owner(who), ttl, wait).await)
    }

    async fn release(&self, lease: Lease) {
        let Lease { resource, owner, token, .. } = lease;
        let released = self.postgres.release(resource, owner, token).await.unwrap();
        assert_eq!(released, Released::Released);
    }

    /// Begins to wait, and returns when the wait has begun.
    async fn wait(&self, name: &str, who: &str) -> tokio::task::JoinHandle<Lease> {
        let before = self.waiters();
        let (postgres, name, who) = (Arc::clone(&self.postgres), resource(name), owner(who));
        let wait =
            tokio::spawn(async move { granted(postgres.acquire(name, who, LONG, LONG).await) });
        until(async || self.waiters() > before).await;
        wait
    }

    fn waiters(&self) -> i64 {
        self.postgres.shared.metrics.waiters.get()
    }

    fn count(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).expect("it exists");
        family.get_metric()[0].get_counter().get_value()
    }
}

async fn subject() -> Subject {
    let fresh = Fresh::new();
    let gateway = fresh.gateway().await;
    Subject {
        coordinator: Arc::clone(&gateway.postgres) as Arc<dyn Coordinator>,
        metrics: gateway.postgres.shared.metrics.clone(),
        shortest_ttl: SHORT,
        _keep: Box::new((gateway.registry, fresh)),
    }
}

contract::tests!(subject());

#[tokio::test]
async fn a_clock_that_went_back_makes_no_lease_longer_for_those_who_wait() {
    let fresh = Fresh::new();
    let gateway = fresh.gateway().await;
    let lease = gateway.acquire("r", "a", SHORT, NOW).await;
    let database = &gateway.postgres.shared.database;
    database
        .first_column("UPDATE fencegate_leases SET expires_at = expires_at + 3600000".to_owned())
        .await
        .unwrap();
    let wait = gateway.acquire("r", "b", LONG, LONG);
    let next = tokio::time::timeout(servers::SOON, wait).await.unwrap();
    assert!(next.token > lease.token);
}

#[tokio::test]
async fn an_end_that_was_seen_stays_whatever_the_clock_does() {
    let fresh = Fresh::new();
    let gateway = fresh.gateway().await;
    gateway.acquire("r", "a", Duration::from_millis(1), NOW).await;
    until(async || gateway.postgres.holder(resource("r")).await.unwrap().lease.is_none()).await;
    assert_eq!(gateway.count("fencegate_leases_lost_total"), 1.0);
    let database = &gateway.postgres.shared.database;
    let rows = database.first_column("SELECT count(*)::text FROM fencegate_leases".to_owned());
    assert_eq!(rows.await.unwrap().as_deref(), Some("0"));
}

#[tokio::test]
async fn waiters_of_all_gateways_stand_in_one_queue() {
    let fresh = Fresh::new();
    let gateways = [fresh.gateway().await, fresh.gateway().await, fresh.gateway().await];
    let mut lease = gateways[0].acquire("r", "first", LONG, NOW).await;
    let mut waits = Vec::new();
    for (who, at) in [("b", 1), ("c", 0), ("d", 2), ("e", 1)] {
        waits.push((who, gateways[at].wait("r", who).await));
    }
    for (who, wait) in waits {
        let last = lease.token;
        gateways[2].release(lease).await;
        lease = tokio::time::timeout(servers::SOON, wait).await.unwrap().unwrap();
        assert_eq!(lease.owner.as_str(), who);
        assert!(lease.token > last);
    }
}

#[tokio::test]
async fn a_gateway_that_died_keeps_nobody_waiting() {
    let fresh = Fresh::new();
    let (holder, dying) = (fresh.gateway().await, fresh.gateway().await);
    let lease = holder.acquire("r", "a", LONG, NOW).await;
    // A place that nobody keeps, as a killed process leaves it.
    let (taken, _) = verbs::attempt(
        &dying.postgres.shared.database,
        verbs::Attempt {
            resource: &resource("r"),
            owner: &owner("dead"),
            ttl: LONG,
            place: None,
            waits: true,
        },
    )
    .await
    .unwrap();
    assert!(matches!(taken, verbs::Found::Queued { .. }));
    let wait = holder.wait("r", "b").await;
    holder.release(lease).await;
    let next = tokio::time::timeout(servers::SOON, wait).await.unwrap().unwrap();
    assert_eq!(next.owner.as_str(), "b");
    assert_eq!(fresh.server.sql("SELECT 1"), "1");
}

#[tokio::test]
async fn many_acquisitions_over_gateways_get_different_rising_tokens() {
    let fresh = Fresh::new();
    let gateways = [fresh.gateway().await, fresh.gateway().await];
    let run = |who: usize| {
        let gateway = &gateways[who % 2];
        async move {
            let mut tokens = Vec::new();
            for _ in 0..5 {
                let lease = gateway.acquire("r", &format!("worker {who}"), LONG, LONG).await;
                tokens.push((lease.acquired_at, lease.token));
                gateway.release(lease).await;
            }
            tokens
        }
    };
    let all = futures_util::future::join_all((0..10).map(run)).await;
    let mut tokens: Vec<_> = all.into_iter().flatten().collect();
    tokens.sort_unstable_by_key(|(_, token)| *token);
    assert!(tokens.windows(2).all(|pair| pair[0].1 < pair[1].1 && pair[0].0 <= pair[1].0));
    assert_eq!(
        gateways.iter().map(|g| g.count("fencegate_leases_acquired_total")).sum::<f64>(),
        50.0
    );
}

#[tokio::test]
async fn holders_that_are_asked_for_together_share_a_statement() {
    let fresh = Fresh::new();
    let gateway = fresh.gateway().await;
    for number in 0..20 {
        gateway.acquire(&format!("r{number}"), "a", LONG, NOW).await;
    }
    let asked = (0..200).map(|number| {
        let name = format!("r{number}");
        let holder = gateway.postgres.holder(resource(&name));
        async move { (name, number < 20, holder.await.unwrap().lease) }
    });
    for (name, is_held, holder) in futures_util::future::join_all(asked).await {
        assert_eq!(holder.map(|lease| lease.resource.to_string()), is_held.then_some(name));
    }
}

#[tokio::test]
async fn leases_that_nobody_asks_about_are_swept_and_counted() {
    let fresh = Fresh::new();
    let gateway = fresh.gateway().await;
    for number in 0..5 {
        gateway.acquire(&format!("r{number}"), "a", Duration::from_millis(1), NOW).await;
    }
    until(async || gateway.count("fencegate_leases_lost_total") == 5.0).await;
}

#[tokio::test]
async fn names_with_quotes_and_backslashes_are_names() {
    let fresh = Fresh::new();
    let gateway = fresh.gateway().await;
    for name in ["'; DROP TABLE fencegate_leases; --", "\\'", "$$", "é\u{1f511}", "a/b", "%s{}?1"]
    {
        let lease = gateway.acquire(name, name, LONG, NOW).await;
        assert_eq!(gateway.postgres.holder(resource(name)).await.unwrap().lease, Some(lease));
    }
}

#[tokio::test]
async fn a_pooler_that_gives_every_transaction_another_session_is_enough() {
    let fresh = Fresh::new();
    let pooler = Pooler::start(&fresh);
    let access = fresh.at(pooler.port);
    let listening = PostgresSettings { access: access.clone(), ..fresh.settings() };
    let deaf = PostgresSettings { access, listen: None };
    let gateways =
        [Gateway::start(&listening).await.unwrap(), Gateway::start(&deaf).await.unwrap()];
    let mut lease = gateways[0].acquire("r", "a", LONG, NOW).await;
    for round in 0..5 {
        let wait = gateways[1].wait("r", &format!("waiter {round}")).await;
        let others = (0..20).map(|n| {
            let (gateway, name) = (&gateways[n % 2], format!("other {n}"));
            async move { gateway.acquire(&name, &name, SHORT, LONG).await }
        });
        futures_util::future::join_all(others).await;
        gateways[0].release(lease).await;
        lease = tokio::time::timeout(servers::SOON, wait).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn it_goes_on_by_itself_after_the_server_was_killed() {
    let mut server = postgres::Postgres::start();
    let access: PostgresAccess = server.url().parse().unwrap();
    let gateway = Gateway::start(&PostgresSettings { listen: Some(access.clone()), access }).await;
    let gateway = gateway.unwrap();
    let before = gateway.acquire("r", "a", LONG, NOW).await;
    server.kill();
    let unanswered = gateway.postgres.holder(resource("r")).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    server.start_again();
    until(async || gateway.postgres.holder(resource("r")).await.is_ok()).await;
    assert_eq!(gateway.postgres.holder(resource("r")).await.unwrap().lease, Some(before.clone()));
    assert!(gateway.acquire("s", "a", LONG, NOW).await.token > before.token);
    gateway.release(before).await;
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_asked_again() {
    let mut server = postgres::Postgres::start();
    let access: PostgresAccess = server.url().parse().unwrap();
    let gateway = Gateway::start(&PostgresSettings { listen: Some(access.clone()), access }).await;
    let gateway = gateway.unwrap();
    gateway.acquire("r", "a", LONG, NOW).await;
    server.suspend();
    let unanswered = gateway.postgres.holder(resource("r")).await;
    assert!(unanswered.unwrap_err().to_string().contains("within"), "it says what is missing");
    server.resume();
    until(async || gateway.postgres.holder(resource("r")).await.is_ok()).await;
}

#[tokio::test]
async fn a_lock_that_somebody_keeps_does_not_hold_a_request_for_long() {
    let fresh = Fresh::new();
    let gateway = fresh.gateway().await;
    let lease = gateway.acquire("r", "a", LONG, NOW).await;
    let other = Database::new(fresh.at(fresh.server.port()).options().unwrap(), Clock::new());
    let script = "BEGIN; SELECT resource FROM fencegate_leases FOR UPDATE";
    other.first_column(script.to_owned()).await.unwrap();
    let Lease { resource, owner, token, .. } = lease.clone();
    let renewed = gateway.postgres.renew(resource, owner, token, None).await;
    assert!(renewed.unwrap_err().to_string().contains("lock timeout"));
    other.close().await;
    gateway.release(lease).await;
}

#[tokio::test]
async fn a_database_that_forgets_is_refused() {
    let fresh = Fresh::new();
    let set = format!("ALTER DATABASE {} SET synchronous_commit = off", fresh.name);
    fresh.server.sql(&set);
    let refused = Gateway::start(&fresh.settings()).await.err().expect("refused");
    assert!(refused.to_string().contains("synchronous_commit"), "{refused}");
}

#[tokio::test]
async fn gateways_that_start_at_once_make_one_schema() {
    let fresh = Fresh::new();
    let starts = (0..5).map(|_| fresh.gateway());
    let gateways = futures_util::future::join_all(starts).await;
    let lease = gateways[0].acquire("r", "a", LONG, NOW).await;
    assert_eq!(gateways[4].postgres.holder(resource("r")).await.unwrap().lease, Some(lease));
}

#[tokio::test]
async fn its_tasks_end_after_it_is_dropped() {
    let fresh = Fresh::new();
    let Gateway { postgres, tasks, .. } = fresh.gateway().await;
    drop(postgres);
    tasks.close();
    tokio::time::timeout(servers::SOON, tasks.wait()).await.expect("all tasks end");
}

/// Whoever came first may be granted the lease while the answer that names no holder is still on its way; what
/// is told of it then reaches nobody.
#[tokio::test]
async fn who_came_second_to_a_free_lease_looks_again_without_being_told() {
    let fresh = Fresh::new();
    let gateway = fresh.gateway().await;
    let database = &gateway.postgres.shared.database;
    let sql = async |script: &str| database.first_column(script.to_owned()).await.unwrap();
    sql("INSERT INTO fencegate_leases_waiters VALUES (0, 'r', 9000000000000)").await;
    for wait in [NOW, SHORT] {
        let second = gateway.postgres.acquire(resource("r"), owner("c"), LONG, wait);
        let first = async {
            let is_queued = "SELECT count(*)::text FROM fencegate_leases_waiters WHERE place > 0";
            until(async || sql(is_queued).await.as_deref() == Some("1")).await;
            sql("INSERT INTO fencegate_leases VALUES ('r', 'b', 1, 3600000, 0, 9000000000000)
                 ON CONFLICT (resource) DO NOTHING")
            .await;
        };
        let (second, ()) = contract::soon(async { tokio::join!(second, first) }).await;
        let Acquired::Held(lease) = second.unwrap() else { panic!("b came first") };
        assert_eq!(lease.owner.as_str(), "b");
        sql("DELETE FROM fencegate_leases").await;
    }
}
