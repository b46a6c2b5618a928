use prometheus::Registry;
use tokio::sync::oneshot;

use super::*;
use crate::coordinator::contract::{self, Subject, granted, owner, resource, until};
use crate::metrics::StoreMetrics;

const LONG: Duration = Duration::from_secs(3600);
const NOW: Duration = Duration::ZERO;

/// A coordinator on a file that outlives it.
struct Run {
    embedded: Embedded,
    database: Database,
    tasks: TaskTracker,
    registry: Registry,
}

impl Run {
    async fn start(directory: &tempfile::TempDir) -> Run {
        let (clock, tasks, registry) = (Clock::new(), TaskTracker::new(), Registry::new());
        let path = directory.path().join("store.db");
        let store_metrics = StoreMetrics::register(&registry).unwrap();
        let database = Database::open(&path, clock, &tasks, store_metrics).await.unwrap();
        let metrics = LeaseMetrics::register(&registry).unwrap();
        let embedded = Embedded::start(&database, clock, &tasks, metrics).await.unwrap();
        Run { embedded, database, tasks, registry }
    }

    /// Ends everything, so that the file can be opened again.
    async fn stop(self) {
        let Run { embedded, database, tasks, .. } = self;
        drop((embedded, database));
        tasks.close();
        tokio::time::timeout(Duration::from_secs(20), tasks.wait()).await.expect("all tasks end");
    }

    async fn acquire(&self, name: &str, ttl: Duration) -> Lease {
        granted(self.embedded.acquire(resource(name), owner("a"), ttl, NOW).await)
    }

    async fn execute(&self, sql: &'static str) {
        let done = self.database.call(Operation::Lease, move |connection| {
            Box::pin(async move { sqlx::query(sql).execute(connection).await.map(drop) })
        });
        done.await.unwrap();
    }

    fn count(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).expect("it exists");
        family.get_metric()[0].get_counter().get_value()
    }
}

async fn subject() -> Subject {
    let directory = tempfile::tempdir().unwrap();
    let Run { embedded, .. } = Run::start(&directory).await;
    let metrics = embedded.shared.metrics.clone();
    Subject {
        coordinator: Arc::new(embedded),
        metrics,
        shortest_ttl: Duration::from_millis(150),
        _keep: Box::new(directory),
    }
}

contract::tests!(subject());

#[tokio::test]
async fn leases_and_the_order_of_tokens_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let run = Run::start(&directory).await;
    let kept = run.acquire("kept", LONG).await;
    let last = run.acquire("released", LONG).await;
    run.embedded.release(last.resource, last.owner, last.token).await.unwrap();
    run.stop().await;

    let run = Run::start(&directory).await;
    assert_eq!(run.embedded.holder(resource("kept")).await.unwrap().lease, Some(kept));
    assert!(run.acquire("released", LONG).await.token > last.token);
    run.stop().await;
}

#[tokio::test]
async fn a_clock_that_went_back_while_nothing_ran_makes_no_lease_longer() {
    let directory = tempfile::tempdir().unwrap();
    let run = Run::start(&directory).await;
    let lease = run.acquire("r", LONG).await;
    run.execute("UPDATE leases SET expires_at = expires_at + 1000 * ttl_ms").await;
    run.stop().await;

    let run = Run::start(&directory).await;
    let found = run.embedded.holder(resource("r")).await.unwrap().lease.expect("it is live");
    assert_eq!(found.token, lease.token);
    assert!(found.expires_at <= Clock::new().wall() + LONG);
    run.stop().await;
}

#[tokio::test]
async fn an_end_that_was_seen_stays_whatever_the_clock_does() {
    let directory = tempfile::tempdir().unwrap();
    let run = Run::start(&directory).await;
    run.acquire("r", Duration::from_millis(1)).await;
    until(async || run.embedded.holder(resource("r")).await.unwrap().lease.is_none()).await;
    run.execute("UPDATE leases SET expires_at = expires_at + 3600000").await;
    assert_eq!(run.embedded.holder(resource("r")).await.unwrap().lease, None);
    assert_eq!(run.count("fencegate_leases_lost_total"), 1.0);
    run.stop().await;
}

#[tokio::test]
async fn a_renewal_that_was_held_up_past_the_expiry_revives_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let run = Run::start(&directory).await;
    let (go_on, hold) = oneshot::channel::<()>();
    let lease = run.acquire("r", Duration::from_millis(200)).await;
    let held_up = run.database.call(Operation::Lease, move |_| {
        Box::pin(async move {
            let _ = hold.await;
            Ok(())
        })
    });
    let Lease { resource, owner, token, .. } = lease.clone();
    let renewal = run.embedded.renew(resource, owner, token, Some(LONG));
    let expire = async {
        until(async || Clock::new().wall() > lease.expires_at).await;
        go_on.send(()).unwrap();
    };
    let (held_up, renewed, ()) = tokio::join!(held_up, renewal, expire);
    held_up.unwrap();
    assert_eq!(renewed.unwrap(), None);
    run.stop().await;
}

#[tokio::test]
async fn leases_that_nobody_asks_about_are_swept_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let run = Run::start(&directory).await;
    let many = 2 * SWEEP_LEASES + 1;
    for number in 0..many {
        run.acquire(&format!("r{number}"), Duration::from_millis(1)).await;
    }
    let kept = run.acquire("kept", LONG).await;
    until(async || run.count("fencegate_leases_lost_total") == f64::from(many)).await;
    assert_eq!(run.embedded.list(None, 10).await.unwrap(), [kept]);
    assert_eq!(run.count("fencegate_leases_acquired_total"), f64::from(many + 1));
    run.stop().await;
}

#[tokio::test]
async fn many_holders_are_asked_for_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let run = Run::start(&directory).await;
    for number in 0..20 {
        run.acquire(&format!("r{number}"), LONG).await;
    }
    let asked = (0..40).map(|number| {
        let name = format!("r{number}");
        let holder = run.embedded.holder(resource(&name));
        async move { (name, number < 20, holder.await.unwrap()) }
    });
    for (name, is_held, holder) in futures_util::future::join_all(asked).await {
        assert_eq!(holder.lease.map(|lease| lease.resource.to_string()), is_held.then_some(name));
    }
    run.stop().await;
}

#[tokio::test]
async fn many_acquisitions_at_once_get_different_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let run = Run::start(&directory).await;
    let names: Vec<_> = (0..50).map(|number| format!("r{number}")).collect();
    let leases = names.iter().map(|name| run.acquire(name, LONG));
    let leases = futures_util::future::join_all(leases).await;
    let tokens: std::collections::HashSet<_> = leases.iter().map(|lease| lease.token).collect();
    assert_eq!(tokens.len(), 50);
    run.stop().await;
}
