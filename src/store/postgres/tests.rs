use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;

use super::wire::LookAnswer;
use super::*;
use crate::fence::{Grant, Mark, Rank, Resource, Token};
use crate::metrics::Operation;
use crate::servers::SOON;
use crate::servers::postgres::Postgres as Server_;
use crate::store::contract::{self, Shared, Subject};
use crate::store::history_contract::{self, HistorySubject};
use crate::store::{HistoryStore, InstanceId, Raise, Raised, Revocation};

mod start;

const TTL: Duration = Duration::from_secs(10);

pub(super) fn settings(url: &str) -> PostgresSettings {
    let url = PostgresUrl::parse(url).unwrap();
    PostgresSettings {
        pooled: url.clone(),
        direct: url,
        connections: 8,
        migrate: Migrate::AtStart,
        instance_ttl: TTL,
    }
}

pub(super) async fn open(url: &str) -> Result<Postgres, ConnectError> {
    let metrics = StoreMetrics::register(&prometheus::Registry::new()).unwrap();
    Postgres::open(&settings(url), Clock::new(), &TaskTracker::new(), metrics).await
}

/// A server, and a run on it.
struct Run {
    _server: Server_,
    store: Postgres,
    fences: PostgresFences,
    instance: InstanceId,
    other: (PostgresFences, InstanceId),
}

impl Run {
    async fn first() -> Run {
        let server = Server_::start();
        let store = open(&server.url()).await.unwrap();
        let fences = PostgresFences::new(&store, &TaskTracker::new());
        let instance = join(&store).await;
        let beside = open(&server.url()).await.unwrap();
        let other = (PostgresFences::new(&beside, &TaskTracker::new()), join(&beside).await);
        Run { _server: server, store, fences, instance, other }
    }
}

/// Waits until `level` holds.
async fn until(what: &str, mut level: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !level().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, holds).await.unwrap_or_else(|_| panic!("in vain: {what}"));
}

/// Begins a run whose lease nobody keeps.
async fn join(store: &Postgres) -> InstanceId {
    let keeper = Keeper::join(store, TTL, metrics()).await.unwrap();
    keeper.lease().instance()
}

fn metrics() -> InstanceMetrics {
    InstanceMetrics::register(&prometheus::Registry::new()).unwrap()
}

#[async_trait(?Send)]
impl Subject for Run {
    fn fences(&self) -> &contract::Fences {
        &self.fences
    }

    fn instance(&self) -> InstanceId {
        self.instance
    }

    async fn next_run(&mut self) {
        let asked = json!({"instance": self.instance.as_i64(), "renewals": 0});
        let call = self.store.call(Operation::Instance, "fencegate_fence", &asked);
        let is_fenced: bool = call.await.unwrap();
        assert!(is_fenced);
        self.instance = join(&self.store).await;
    }
}

impl HistorySubject for Run {
    fn history(&self) -> &dyn HistoryStore {
        &self.fences
    }
}

impl Shared for Run {
    fn other(&self) -> contract::Run<'_> {
        contract::Run { fences: &self.other.0, instance: self.other.1 }
    }

    async fn revoked(&self, of: InstanceId) -> Vec<(String, u64, Option<Duration>)> {
        let asked = json!({"instance": of.as_i64()});
        let look: LookAnswer =
            self.store.call(Operation::Look, "fencegate_look", &asked).await.unwrap();
        let revoked = look.revoked.into_iter().map(|row| Revocation::try_from(row).unwrap());
        revoked.map(|it| (it.resource.to_string(), it.grant.rank.token.get(), it.drain)).collect()
    }
}

/// Like `of_a_grant_and_a_newer_raise_at_once_one_knows_of_the_other`, with the one moment that counts made to
/// last: a single statement for all of a raise fails here every time.
#[tokio::test]
async fn a_raise_that_waited_for_a_lock_sees_the_grant_that_was_recorded_meanwhile() {
    let run = Run::first().await;
    let (one, two) = (run.store(), run.other());
    let (resource, rank) =
        (Resource::new("r").unwrap(), |number| Rank::first(Token::from_i64(number).unwrap()));
    let raise = |number, grant| Raise {
        resource: resource.clone(),
        rank: rank(number),
        confirmed: true,
        owner: None,
        grant,
        drain: None,
    };
    two.fences.raise(two.instance, raise(5, None)).await.unwrap();
    let mut slow = connect::connect(&run.store.0.direct).await.unwrap();
    let older = wire::raise(0, &raise(5, Some(Grant { settle: TTL, number: 1 })));
    let older = json!({"instance": one.instance.as_i64(), "raises": [older]});
    let sql = format!("BEGIN; SELECT fencegate_raise('{older}')");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut slow).await.unwrap();

    let newer = two.fences.raise(two.instance, raise(6, Some(Grant { settle: TTL, number: 1 })));
    let commit = async {
        let is_waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)";
        until("the newer raise waits", async || {
            let (is_waiting,) =
                sqlx::query_as(is_waiting).fetch_one(&run.store.0.pool).await.unwrap();
            is_waiting
        })
        .await;
        sqlx::raw_sql("COMMIT").execute(&mut slow).await.unwrap();
    };
    let (newer, ()) = futures_util::future::join(newer, commit).await;

    let expected = Mark { rank: rank(6), confirmed: true };
    assert_eq!(newer.unwrap(), Raised { mark: expected, elsewhere: true });
}

contract::tests!(Run::first());
history_contract::tests!(Run::first());
contract::shared_tests!(Run::first());
