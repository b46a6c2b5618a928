use async_trait::async_trait;
use futures_util::poll;
use prometheus::Registry;

use super::*;
use crate::coordinator::{Acquired, Embedded, Holding, Lease, LeaseMetrics, Released};
use crate::fence::{Mark, Owner};
use crate::metrics::{Exemplars, StoreMetrics};
use crate::store::{Database, Member, Revocation, SqliteFences};

async fn fences(directory: &tempfile::TempDir) -> Arc<Fences> {
    let (over, _) = mpsc::channel(1);
    fences_with(directory, over).await
}

/// Grants that are to be given back go to `over`.
async fn fences_with(directory: &tempfile::TempDir, over: mpsc::Sender<Over>) -> Arc<Fences> {
    let (clock, tasks, registry) = (Clock::new(), TaskTracker::new(), Registry::new());
    let path = directory.path().join("store.db");
    let store_metrics = StoreMetrics::register(&registry).unwrap();
    let database = Database::open(&path, clock, &tasks, store_metrics).await.unwrap();
    let lease = Arc::new(InstanceLease::unlimited(database.instance()));
    let metrics = LeaseMetrics::register(&registry).unwrap();
    let coordinator = Embedded::start(&database, clock, &tasks, metrics).await.unwrap();
    let metrics = FenceMetrics::register(&registry, &Exemplars::new(clock)).unwrap();
    let parts = FencesParts {
        store: Arc::new(SqliteFences::new(&database, clock, &tasks)),
        lease,
        coordinator: Arc::new(coordinator),
        clock,
        bounds: Bounds { waiters: 10, cells: 10, idle: Duration::ZERO },
        metrics,
    };
    // Not by `Fences::new`: its housekeeping would give cells up at times of its own.
    Arc::new(Fences::unattended(parts, over, &tasks))
}

const DEMAND: Demand = Demand {
    terms: Terms {
        settle: Duration::from_secs(1),
        drain: Some(Duration::from_secs(1)),
        held: false,
    },
    wait: Duration::from_secs(5),
    limit: None,
};

fn token(number: i64) -> Token {
    Token::from_i64(number).unwrap()
}

fn trace_id() -> TraceId {
    crate::trace::TraceIds::new().next()
}

#[tokio::test]
async fn an_operators_raise_is_not_made_on_a_cell_that_is_being_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    let resource = Resource::new("r").unwrap();
    fences.admit(&resource, token(5), &DEMAND, trace_id()).await.unwrap().over();
    let closing = fences.close_idle().closing;
    assert_eq!(closing[0].grants, [OverGrant { rank: Rank::first(token(5)), number: Some(1) }]);

    let mut raise = std::pin::pin!(fences.raise_by_operator(resource.clone(), token(9)));
    assert!(poll!(&mut raise).is_pending());

    let row = fences.show(resource.clone()).await.unwrap().unwrap();
    assert_eq!(row.highest_token, token(5), "its successor might have read the mark before");
    fences.end_closing(&closing[0], true);
    assert_eq!(raise.await.unwrap(), OperatorRaise::Raised);
    let refused = fences.admit(&resource, token(5), &DEMAND, trace_id()).await.err();
    assert!(matches!(refused, Some(Refused::Stale { highest, .. }) if highest == token(9)));
}

#[tokio::test]
async fn an_operators_raise_goes_on_when_nobody_waits_for_it_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    let resource = Resource::new("r").unwrap();
    fences.admit(&resource, token(5), &DEMAND, trace_id()).await.unwrap().over();

    {
        let mut raise = std::pin::pin!(fences.raise_by_operator(resource.clone(), token(9)));
        assert!(poll!(&mut raise).is_pending());
    }

    let is_known = async {
        while fences.admit(&resource, token(5), &DEMAND, trace_id()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), is_known).await.unwrap();
    let row = fences.show(resource).await.unwrap().unwrap();
    assert_eq!(row.highest_token, token(9));
}

#[tokio::test]
async fn a_mark_that_is_there_already_is_not_raised() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    let resource = Resource::new("r").unwrap();
    let raise = |number| fences.raise_by_operator(resource.clone(), token(number));
    assert_eq!(raise(5).await.unwrap(), OperatorRaise::Raised);
    assert_eq!(raise(5).await.unwrap(), OperatorRaise::NotRaised(token(5)));
    assert_eq!(raise(4).await.unwrap(), OperatorRaise::NotRaised(token(5)));
    assert_eq!(raise(6).await.unwrap(), OperatorRaise::Raised);
}

#[tokio::test]
async fn a_cell_whose_grants_may_not_be_given_back_is_read_anew() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    let resource = Resource::new("r").unwrap();
    fences.admit(&resource, token(5), &DEMAND, trace_id()).await.unwrap().over();
    let closing = fences.close_idle().closing;
    assert!(
        fences.admit_from_memory("r", token(5), &DEMAND.terms, fences.shared.clock.now()).is_none()
    );
    let mut write = std::pin::pin!(fences.admit(&resource, token(5), &DEMAND, trace_id()));
    assert!(poll!(&mut write).is_pending());

    fences.end_closing(&closing[0], false);

    write.await.unwrap().over();
    assert_eq!((fences.count().cells, fences.count().grants), (1, 1));
}

#[tokio::test]
async fn nobody_waits_for_ever_for_a_cell_that_was_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    let resource = Resource::new("r").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let evictor = {
        let (fences, stop) = (Arc::clone(&fences), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut closed = 0u64;
            while !stop.load(Ordering::Relaxed) {
                for closing in fences.close_idle().closing {
                    closed += 1;
                    fences.end_closing(&closing, true);
                }
            }
            closed
        })
    };
    let mut admissions = 0u64;
    let mut hung = false;
    let until = fences.shared.clock.now() + Duration::from_secs(5);
    while fences.shared.clock.now() < until && !hung {
        // Waits only for the cell: polled by hand, nothing else is behind it.
        let write = fences.admit(&resource, token(5), &DEMAND, trace_id());
        match tokio::time::timeout(Duration::from_secs(20), write).await {
            Ok(permit) => permit.unwrap().over(),
            Err(_) => hung = true,
        }
        admissions += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let closed = evictor.join().unwrap();
    assert!(!hung, "a write waited for ever after {admissions} admissions, {closed} evictions");
}

#[tokio::test]
async fn a_limited_write_is_refused_for_what_did_not_answer() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    let resource = Resource::new("r").unwrap();
    let demand = Demand { limit: Some(Duration::from_millis(20)), ..DEMAND };
    let slot = fences.slot(&resource);
    let busy = slot.turn.lock().await;

    let refused = fences.admit(&resource, token(5), &demand, trace_id()).await.err();

    assert!(matches!(refused, Some(Refused::Store(_))), "{refused:?}");
    drop(busy);
    fences.admit(&resource, token(5), &DEMAND, trace_id()).await.unwrap().over();
}

/// A coordinator that hangs, which the embedded one cannot be made to do.
struct Silent;

#[async_trait]
impl Coordinator for Silent {
    async fn acquire(
        &self,
        _: Resource,
        _: Owner,
        _: Duration,
        _: Duration,
    ) -> Result<Acquired, CoordinatorError> {
        std::future::pending().await
    }

    async fn renew(
        &self,
        _: Resource,
        _: Owner,
        _: Token,
        _: Option<Duration>,
    ) -> Result<Option<Lease>, CoordinatorError> {
        std::future::pending().await
    }

    async fn release(&self, _: Resource, _: Owner, _: Token) -> Result<Released, CoordinatorError> {
        std::future::pending().await
    }

    async fn holder(&self, _: Resource) -> Result<Holding, CoordinatorError> {
        std::future::pending().await
    }

    fn epoch(&self) -> Epoch {
        Epoch::FIRST
    }

    async fn list(&self, _: Option<Resource>, _: u32) -> Result<Vec<Lease>, CoordinatorError> {
        std::future::pending().await
    }

    async fn count(&self) -> Result<Option<u64>, CoordinatorError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_limited_write_blames_the_coordinator_if_that_one_is_silent() {
    let directory = tempfile::tempdir().unwrap();
    let mut fences = fences(&directory).await;
    Arc::get_mut(&mut fences).expect("nobody else has it").coordinator = Arc::new(Silent);
    let resource = Resource::new("r").unwrap();
    let demand = Demand {
        terms: Terms { held: true, ..DEMAND.terms },
        limit: Some(Duration::from_secs(5)),
        ..DEMAND
    };

    let refused = fences.admit(&resource, token(5), &demand, trace_id()).await.err();

    assert!(matches!(refused, Some(Refused::Coordinator(_))), "{refused:?}");
}

async fn write(fences: &Arc<Fences>, number: i64) {
    let resource = Resource::new("r").unwrap();
    fences.admit(&resource, token(number), &DEMAND, trace_id()).await.unwrap().over();
}

/// The tokens of all that is to be given back.
fn given_back(over: &mut mpsc::Receiver<Over>) -> Vec<u64> {
    std::iter::from_fn(|| over.try_recv().ok())
        .map(|(_, _, grant)| grant.rank.token.get())
        .collect()
}

/// Whether what is revoked is given back in time.
async fn makes_way(fences: &Fences) -> bool {
    let is_given_back = async {
        while !fences.shared.making_way.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), is_given_back).await.is_ok()
}

/// Token 6 has the grant, and that of token 5 is over.
async fn with_a_spare() -> (tempfile::TempDir, Arc<Fences>, mpsc::Receiver<Over>) {
    let directory = tempfile::tempdir().unwrap();
    let (sender, over) = mpsc::channel(10);
    let fences = fences_with(&directory, sender).await;
    write(&fences, 5).await;
    write(&fences, 6).await;
    (directory, fences, over)
}

/// This store makes no use of it.
#[tokio::test]
async fn a_spare_that_a_raise_took_along_for_nothing_is_given_back() {
    let (_directory, fences, mut over) = with_a_spare().await;
    assert_eq!(given_back(&mut over), [0; 0], "it is kept for the next raise");
    write(&fences, 7).await;
    assert_eq!(given_back(&mut over), [5]);
    write(&fences, 7).await;
    assert_eq!(given_back(&mut over), [0; 0], "nothing was raised");
}

#[tokio::test]
async fn a_spare_is_given_back_if_nobody_waits_for_the_raise_any_more_that_took_it_along() {
    let (_directory, fences, mut over) = with_a_spare().await;
    {
        let resource = Resource::new("r").unwrap();
        let mut newer = std::pin::pin!(fences.admit(&resource, token(7), &DEMAND, trace_id()));
        assert!(poll!(&mut newer).is_pending());
        let asked = fences.slot(&resource).cell().take_spare(fences.shared.clock.now());
        assert_eq!(asked, None, "the raise has it");
        assert_eq!(given_back(&mut over), [0; 0]);
    }
    assert_eq!(given_back(&mut over), [5]);
}

#[tokio::test]
async fn a_spare_that_no_raise_takes_along_is_given_back_after_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    fences.bound(Bounds { idle: Duration::from_secs(3600), ..fences.bounds() });
    write(&fences, 5).await;
    let spare_since = fences.shared.clock.now();
    write(&fences, 6).await;
    let spares = loop {
        let spares = fences.close_idle().spares;
        if !spares.is_empty() {
            break spares;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(fences.shared.clock.now().since(spare_since) >= Duration::from_secs(1));
    let [(_, resource, grant)] = &*spares else { panic!("{spares:?}") };
    assert_eq!((resource.as_str(), grant.rank.token), ("r", token(5)));
    assert!(fences.close_idle().spares.is_empty());
}

/// Somebody else has a newer token: that one is let in once it is gone.
#[tokio::test]
async fn no_spare_is_kept_from_somebody_who_waits() {
    let (_directory, fences, mut over) = with_a_spare().await;
    let revocation = Revocation {
        resource: Resource::new("r").unwrap(),
        grant: OverGrant { rank: Rank::first(token(6)), number: Some(2) },
        mark: Mark { rank: Rank::first(token(7)), confirmed: true },
        drain: None,
    };
    fences.revoked(fences.lease().instance(), vec![revocation]);
    assert!(makes_way(&fences).await);
    assert_eq!(given_back(&mut over), [5, 6]);
}

#[tokio::test]
async fn only_the_end_of_a_shutdown_cuts_a_write_that_cuts_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    let resource = Resource::new("r").unwrap();
    let observer = Demand { terms: Terms { drain: None, ..DEMAND.terms }, ..DEMAND };
    let impatient = Demand {
        terms: Terms { drain: Some(Duration::ZERO), ..DEMAND.terms },
        wait: Duration::ZERO,
        ..DEMAND
    };
    let observed = fences.admit(&resource, token(5), &observer, trace_id()).await.unwrap();

    let newer = fences.admit(&resource, token(6), &impatient, trace_id()).await.err();

    assert!(matches!(newer, Some(Refused::Draining)), "{newer:?}");
    assert!(!observed.is_cut());
    fences.cut_all();
    assert!(observed.is_cut());
    observed.over();
}

#[tokio::test]
async fn a_revoked_grant_is_given_back_when_its_last_write_ends() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    let resource = Resource::new("r").unwrap();
    let write = fences.admit(&resource, token(5), &DEMAND, trace_id()).await.unwrap();
    let revocation = Revocation {
        resource: resource.clone(),
        grant: OverGrant { rank: Rank::first(token(5)), number: Some(1) },
        mark: Mark { rank: Rank::first(token(6)), confirmed: true },
        drain: None,
    };
    fences.revoked(fences.lease().instance(), vec![revocation]);
    // On the one thread of this test it waits by then.
    while !matches!(fences.slot(&resource).cell().mark(), Some(mark) if mark.rank.token == token(6))
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(fences.shared.making_way.len(), 1);

    write.over();

    assert!(makes_way(&fences).await, "it waits although nothing is under way");
}
