//! The epoch guard, on an etcd that is wiped and restored, and on a store that is.

use std::path::{Path, PathBuf};

use super::*;
use crate::coordinator::Adopted;
use crate::coordinator::contract::{granted, owner, resource, until};
use crate::coordinator::etcd::sentinel::Snapshot;
use crate::metrics::StoreMetrics;
use crate::store::{Database, FenceStore, HistoryStore, SqliteFences};

/// A gateway's part of it: a store, and a coordinator that is guarded.
struct Gateway {
    etcd: Etcd,
    fences: Arc<SqliteFences>,
    tasks: TaskTracker,
    registry: Registry,
}

impl Gateway {
    async fn start(server: &Server, store: &Path) -> Gateway {
        let (clock, tasks, registry) = (Clock::new(), TaskTracker::new(), Registry::new());
        let metrics = StoreMetrics::register(&registry).unwrap();
        let database = Database::open(store, clock, &tasks, metrics).await.unwrap();
        let fences = Arc::new(SqliteFences::new(&database, clock, &tasks));
        let guarded = Guarded {
            history: Arc::clone(&fences) as _,
            metrics: GuardMetrics::register(&registry).unwrap(),
        };
        let lease_metrics = LeaseMetrics::register(&registry).unwrap();
        let settings = settings(server, Layout::Mutex);
        let etcd = Etcd::start(&settings, Some(guarded), clock, &tasks, lease_metrics);
        etcd.check().await.unwrap();
        Gateway { etcd, fences, tasks, registry }
    }

    async fn stop(self) {
        let Gateway { etcd, fences, tasks, .. } = self;
        drop((etcd, fences));
        tasks.close();
        tokio::time::timeout(Duration::from_secs(20), tasks.wait()).await.expect("all tasks end");
    }

    async fn acquire(&self, name: &str) -> Lease {
        granted(self.etcd.acquire(resource(name), owner("a"), LONG, NO_WAIT).await)
    }

    async fn epoch(&self, name: &str) -> Epoch {
        self.etcd.holder(resource(name)).await.unwrap().epoch
    }

    async fn is_changed(&self) -> bool {
        matches!(self.etcd.holder(resource("r")).await, Err(CoordinatorError::Changed(_)))
    }

    fn gauge(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).expect("it exists");
        family.get_metric()[0].get_gauge().get_value()
    }

    async fn raise(&self, lease: &Lease) {
        let raise = crate::store::Raise {
            resource: lease.resource.clone(),
            rank: crate::fence::Rank::first(lease.token),
            confirmed: true,
            owner: None,
            grant: None,
            spare: None,
            drain: None,
        };
        self.fences.raise_marks(vec![raise]).await.unwrap();
    }

    /// Waits until the sentinel is another one than now.
    async fn beat(&self) {
        let before = self.fences.history().await.unwrap().map(|history| history.sentinel);
        // It is rewritten only if something else was.
        self.acquire("beat").await;
        until(async || {
            let history = self.fences.history().await.unwrap().expect("it was in contact");
            history.next.is_none() && Some(history.sentinel) != before
        })
        .await;
    }

    /// Waits until there is a sentinel.
    async fn marked(&self) {
        until(async || {
            self.fences.history().await.unwrap().is_some_and(|history| history.sentinel > 0)
        })
        .await;
    }

    async fn assert_changed_and_adopt(&self) {
        assert!(self.is_changed().await);
        assert_eq!(self.gauge("fencegate_coordinator_changed"), 1.0);
        let guard = self.etcd.guard().unwrap();
        assert!(guard.view().await.unwrap().changed.is_some());
        let epoch = Epoch::FIRST.next();
        assert_eq!(guard.adopt().await.unwrap(), Adopted::Epoch(epoch));
        assert_eq!(self.epoch("r").await, epoch);
        assert_eq!(self.etcd.epoch(), epoch);
        assert_eq!(self.gauge("fencegate_coordinator_changed"), 0.0);
        assert_eq!(self.gauge("fencegate_coordinator_epoch"), 2.0);
        assert_eq!(guard.adopt().await.unwrap(), Adopted::Unchanged(epoch));
    }
}

fn store() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store.db");
    (directory, store)
}

#[tokio::test]
async fn a_history_that_goes_on_over_restarts_of_both_is_the_same() {
    let mut server = Server::single();
    let (_directory, store) = store();
    let gateway = Gateway::start(&server, &store).await;
    gateway.marked().await;
    gateway.acquire("r").await;
    gateway.stop().await;
    server.kill(0);
    server.start(0);
    let gateway = Gateway::start(&server, &store).await;
    assert_eq!(gateway.epoch("r").await, Epoch::FIRST);
    gateway.beat().await;
    assert_eq!(gateway.epoch("r").await, Epoch::FIRST);
    assert_eq!(gateway.gauge("fencegate_coordinator_changed"), 0.0);
}

#[tokio::test]
async fn an_etcd_that_was_restored_with_the_same_flags_is_another_history() {
    let mut server = Server::single();
    let (_directory, store) = store();
    let gateway = Gateway::start(&server, &store).await;
    gateway.marked().await;
    let snapshot = server.snapshot();
    gateway.acquire("r").await;
    assert_eq!(gateway.epoch("r").await, Epoch::FIRST);
    server.restore(&snapshot);
    gateway.assert_changed_and_adopt().await;
}

#[tokio::test]
async fn a_restored_etcd_is_noticed_by_a_gateway_that_was_not_there() {
    let mut server = Server::single();
    let (_directory, store) = store();
    let gateway = Gateway::start(&server, &store).await;
    gateway.marked().await;
    let snapshot = server.snapshot();
    gateway.acquire("r").await;
    gateway.beat().await;
    gateway.stop().await;
    server.restore(&snapshot);
    let gateway = Gateway::start(&server, &store).await;
    gateway.assert_changed_and_adopt().await;
}

#[tokio::test]
async fn an_etcd_that_was_wiped_is_another_history() {
    let mut server = Server::single();
    let (_directory, store) = store();
    let gateway = Gateway::start(&server, &store).await;
    gateway.marked().await;
    server.wipe();
    gateway.assert_changed_and_adopt().await;
    gateway.acquire("r").await;
    gateway.beat().await;
    assert_eq!(gateway.epoch("r").await, Epoch::FIRST.next());
}

#[tokio::test]
async fn a_restored_etcd_whose_revision_was_bumped_is_another_history() {
    let mut server = Server::single();
    let (_directory, store) = store();
    let gateway = Gateway::start(&server, &store).await;
    gateway.marked().await;
    let snapshot = server.snapshot();
    gateway.acquire("r").await;
    gateway.beat().await;
    let reached = gateway.etcd.guard().unwrap().view().await.unwrap().revision;
    gateway.stop().await;
    server.restore(&snapshot);
    // What `--bump-revision` of later versions does: revisions go on above those of before.
    for _ in 0..reached + 10 {
        server.ctl(&["put", "bump", ""]);
    }
    let gateway = Gateway::start(&server, &store).await;
    gateway.assert_changed_and_adopt().await;
}

#[tokio::test]
async fn another_gateway_on_the_store_learns_of_the_adoption() {
    let mut server = Server::single();
    let (_directory, store) = store();
    let gateway = Gateway::start(&server, &store).await;
    gateway.marked().await;
    let registry = Registry::new();
    let guarded = Guarded {
        history: Arc::clone(&gateway.fences) as _,
        metrics: GuardMetrics::register(&registry).unwrap(),
    };
    let metrics = LeaseMetrics::register(&registry).unwrap();
    let settings = settings(&server, Layout::Mutex);
    let other = Etcd::start(&settings, Some(guarded), Clock::new(), &TaskTracker::new(), metrics);
    // A high revision is all that it knows of the old history.
    gateway.acquire("r").await;
    assert_eq!(other.holder(resource("r")).await.unwrap().epoch, Epoch::FIRST);
    server.wipe();
    assert!(other.holder(resource("r")).await.is_err());
    gateway.assert_changed_and_adopt().await;
    assert_eq!(other.holder(resource("r")).await.unwrap().epoch, Epoch::FIRST.next());
}

#[tokio::test]
async fn a_store_that_was_restored_trusts_no_mark_and_has_those_of_the_holders() {
    let server = Server::single();
    let (directory, store) = store();
    let gateway = Gateway::start(&server, &store).await;
    gateway.marked().await;
    let (old, gone) = (gateway.acquire("r").await, gateway.acquire("gone").await);
    gateway.raise(&old).await;
    gateway.raise(&gone).await;
    gateway.stop().await;
    let backup = directory.path().join("backup.db");
    std::fs::copy(&store, &backup).unwrap();

    let gateway = Gateway::start(&server, &store).await;
    let new = gateway.acquire("r").await;
    gateway.raise(&new).await;
    gateway.beat().await;
    gateway.etcd.release(resource("gone"), owner("a"), gone.token).await.unwrap();
    gateway.stop().await;

    let gateway = Gateway::start(&server, &backup).await;
    let row = gateway.fences.show(resource("r")).await.unwrap().expect("it is there");
    assert_eq!((row.highest_token, row.confirmed), (new.token, false));
    let row = gateway.fences.show(resource("gone")).await.unwrap().expect("it is there");
    assert_eq!((row.highest_token, row.confirmed), (gone.token, false));
    assert_eq!(gateway.epoch("r").await, Epoch::FIRST);
    assert_eq!(gateway.gauge("fencegate_coordinator_changed"), 0.0);
}

#[tokio::test]
async fn marks_of_another_coordinator_are_of_an_earlier_epoch() {
    let server = Server::single();
    let (_directory, store) = store();
    {
        let (clock, tasks) = (Clock::new(), TaskTracker::new());
        let metrics = StoreMetrics::register(&Registry::new()).unwrap();
        let database = Database::open(&store, clock, &tasks, metrics).await.unwrap();
        let fences = SqliteFences::new(&database, clock, &tasks);
        let raise = crate::store::Raise {
            resource: resource("r"),
            rank: crate::fence::Rank::first(Token::MAX),
            confirmed: true,
            owner: None,
            grant: None,
            spare: None,
            drain: None,
        };
        fences.raise_marks(vec![raise]).await.unwrap();
        drop((database, fences));
        tasks.close();
        tasks.wait().await;
    }
    let gateway = Gateway::start(&server, &store).await;
    assert_eq!(gateway.epoch("r").await, Epoch::FIRST.next());
}

#[tokio::test]
async fn a_check_of_the_history_costs_no_request_of_its_own() {
    let server = Server::single();
    let (_directory, store) = store();
    let gateway = Gateway::start(&server, &store).await;
    gateway.marked().await;
    // Now and then the history is looked at beside, but not each time.
    until(async || {
        let before = txns(&server);
        gateway.epoch("r").await;
        txns(&server) == before + 1
    })
    .await;
}

#[tokio::test]
async fn an_answer_of_another_history_is_not_taken_for_one_of_the_present() {
    let server = Server::single();
    let (_directory, store) = store();
    let gateway = Gateway::start(&server, &store).await;
    gateway.marked().await;
    let guard = gateway.etcd.guard().expect("a gateway has one");
    let check = guard.begin().await.unwrap();
    let present = guard.sentinel().look(&check.id).await.unwrap();
    let others = [
        Snapshot { cluster_id: present.cluster_id + 1, ..present.clone() },
        Snapshot { revision: present.revision + 9, sentinel: None, ..present.clone() },
        Snapshot { revision: 1, ..present.clone() },
    ];
    // etcd itself is what it was, as a look at it shows: but it is not who answered.
    for answered in others {
        let check = guard.begin().await.unwrap();
        assert_eq!(guard.verify(check, answered).await.unwrap(), None);
    }
    assert_eq!(guard.verify(check, present).await.unwrap(), Some(Epoch::FIRST));
}
