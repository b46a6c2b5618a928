use futures_util::poll;
use prometheus::Registry;

use super::*;
use crate::coordinator::{Embedded, LeaseMetrics};
use crate::store::{Database, SqliteFences};

async fn fences(directory: &tempfile::TempDir) -> Arc<Fences> {
    let (clock, tasks, registry) = (Clock::new(), TaskTracker::new(), Registry::new());
    let path = directory.path().join("store.db");
    let database = Database::open(&path, clock, &tasks).await.unwrap();
    let metrics = LeaseMetrics::register(&registry).unwrap();
    let coordinator = Embedded::start(&database, clock, &tasks, metrics).await.unwrap();
    let (over, _) = mpsc::channel(1);
    let (doubts, metrics) = (Doubts::new(clock), FenceMetrics::register(&registry).unwrap());
    // Not by `Fences::new`: its housekeeping would give cells up at times of its own.
    Arc::new(Fences {
        slots: DashMap::new(),
        store: Arc::new(SqliteFences::new(&database, clock, &tasks)),
        coordinator: Arc::new(coordinator),
        shared: Arc::new(Shared {
            clock,
            doubts,
            metrics,
            cuts: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            over,
        }),
        dead_since: clock.now(),
        bounds: Bounds { waiters: 10, cells: 10, idle: Duration::ZERO },
    })
}

const DEMAND: Demand = Demand {
    terms: Terms { settle: Duration::from_secs(1), drain: Duration::from_secs(1) },
    wait: Duration::from_secs(5),
    held: false,
};

fn token(number: i64) -> Token {
    Token::from_i64(number).unwrap()
}

#[tokio::test]
async fn an_operators_raise_is_not_made_on_a_cell_that_is_being_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    let resource = Resource::new("r").unwrap();
    fences.admit(&resource, token(5), &DEMAND).await.unwrap().over();
    assert_eq!(fences.close_idle(), [(resource.clone(), vec![token(5)])]);

    let mut raise = std::pin::pin!(fences.raise_by_operator(resource.clone(), token(9)));
    assert!(poll!(&mut raise).is_pending());

    let row = fences.show(resource.clone()).await.unwrap().unwrap();
    assert_eq!(row.highest_token, token(5), "its successor might have read the mark before");
    fences.end_closing(&resource, true);
    assert_eq!(raise.await.unwrap(), OperatorRaise::Raised);
    let refused = fences.admit(&resource, token(5), &DEMAND).await.err();
    assert!(matches!(refused, Some(Refused::Stale { highest }) if highest == token(9)));
}

#[tokio::test]
async fn an_operators_raise_goes_on_when_nobody_waits_for_it_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let fences = fences(&directory).await;
    let resource = Resource::new("r").unwrap();
    fences.admit(&resource, token(5), &DEMAND).await.unwrap().over();

    {
        let mut raise = std::pin::pin!(fences.raise_by_operator(resource.clone(), token(9)));
        assert!(poll!(&mut raise).is_pending());
    }

    let is_known = async {
        while fences.admit(&resource, token(5), &DEMAND).await.is_ok() {
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
    fences.admit(&resource, token(5), &DEMAND).await.unwrap().over();
    assert_eq!(fences.close_idle().len(), 1);
    assert!(
        fences.admit_from_memory("r", token(5), &DEMAND.terms, fences.shared.clock.now()).is_none()
    );
    let mut write = std::pin::pin!(fences.admit(&resource, token(5), &DEMAND));
    assert!(poll!(&mut write).is_pending());

    fences.end_closing(&resource, false);

    write.await.unwrap().over();
    assert_eq!(fences.census(), (1, 0, 1));
}
