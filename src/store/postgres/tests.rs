use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::PgConnection;
use sqlx::postgres::PgListener;

use super::wire::LookAnswer;
use super::*;
use crate::fence::{Grant, Mark, OverGrant, Rank, Resource, Token};
use crate::metrics::Operation;
use crate::servers::SOON;
use crate::servers::postgres::Postgres as Server_;
use crate::store::contract::{self, Shared, Subject};
use crate::store::history_contract::{self, HistorySubject};
use crate::store::{FenceStore, HistoryStore, InstanceId, Raise, Raised, Revocation};

mod at_hand;
mod lookups;
mod spares;
mod start;
mod upgrade;

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
    open_with(&settings(url)).await
}

async fn open_with(settings: &PostgresSettings) -> Result<Postgres, ConnectError> {
    let metrics = StoreMetrics::register(&prometheus::Registry::new()).unwrap();
    Postgres::open(settings, Clock::new(), &TaskTracker::new(), metrics).await
}

/// A server, and a run on it.
struct Run {
    server: Server_,
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
        Run { server, store, fences, instance, other }
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

/// For what this transaction has locked.
async fn commit_once_somebody_waits(run: &Run, transaction: &mut PgConnection) {
    until("somebody waits for a lock", async || {
        let is_waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)";
        let (is_waiting,) = sqlx::query_as(is_waiting).fetch_one(&run.store.0.pool).await.unwrap();
        is_waiting
    })
    .await;
    sqlx::raw_sql("COMMIT").execute(transaction).await.unwrap();
}

fn first_raise(resource: &str, token: i64) -> Raise {
    Raise {
        resource: Resource::new(resource).unwrap(),
        rank: Rank::first(Token::from_i64(token).unwrap()),
        confirmed: true,
        owner: None,
        grant: Some(Grant { settle: TTL, number: 1 }),
        spare: None,
        drain: None,
    }
}

/// The grant of such a raise.
fn first_over(token: i64) -> OverGrant {
    OverGrant { rank: Rank::first(Token::from_i64(token).unwrap()), number: Some(1) }
}

/// What `fencegate_raise` is asked.
fn raises_asked(instance: InstanceId, raises: &[Raise]) -> Value {
    let raises = raises.iter().enumerate();
    let raises = raises.map(|(nth, raise)| wire::Asked::new(nth, raise)).collect();
    json!(wire::AskedTogether { instance: instance.as_i64(), raises })
}

/// Makes a call in a transaction of its own, which stays open.
async fn begin(run: &Run, function: &str, asked: &Value) -> PgConnection {
    let mut transaction = connect::connect(&run.store.0.direct).await.unwrap();
    let sql = format!("BEGIN; SELECT {function}('{asked}')");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut transaction).await.unwrap();
    transaction
}

async fn listen_to(server: &Server_) -> PgListener {
    let mut listener = PgListener::connect(&server.url()).await.unwrap();
    listener.listen("fencegate").await.unwrap();
    listener
}

async fn next_said(listener: &mut PgListener) -> String {
    let said = tokio::time::timeout(SOON, listener.recv()).await.expect("nothing is said");
    said.unwrap().payload().to_owned()
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

/// The schema has a function for each of the two.
#[tokio::test]
async fn raises_in_one_batch_do_what_each_does_alone() {
    let run = Run::first().await;
    let (one, two) = (run.store(), run.other());
    let raise = |name: String, number, confirmed, drain| Raise {
        confirmed,
        grant: confirmed.then_some(Grant { settle: TTL, number }),
        drain,
        ..first_raise(&name, number)
    };
    let asked = |prefix: &str| -> Vec<Raise> {
        let asked = |(name, number, confirmed, drain)| {
            raise(format!("{prefix}{name}"), number, confirmed, drain)
        };
        let newer = [("cut", 6, true, Some(TTL)), ("uncut", 6, true, None)];
        let others = [("same", 5, true, None), ("stale", 4, true, Some(TTL))];
        let more = [("operator's", 7, false, None), ("first", 1, true, Some(TTL))];
        [newer, others, more].into_iter().flatten().map(asked).collect()
    };
    let kept = |prefix: &str| {
        let rows = |columns: &str, table: &str| {
            run.server.sql(&format!(
                "SELECT substr(resource, {}), {columns} FROM {table}
                 WHERE starts_with(resource, '{prefix}') ORDER BY resource, token",
                prefix.len() + 1
            ))
        };
        let marks = rows("epoch, token, confirmed, owner", "fences");
        let grants = rows("token, instance, settle_ms, number, revoked, drain_ms", "grants");
        (marks, grants)
    };
    for prefix in ["alone-", "batch-"] {
        for before in
            asked(prefix).into_iter().filter(|it| !it.resource.as_str().ends_with("first"))
        {
            let name = before.resource.to_string();
            two.fences.raise(two.instance, raise(name, 5, true, None)).await.unwrap();
        }
    }

    let mut alone = Vec::new();
    for raise in asked("alone-") {
        alone.push(one.fences.raise(one.instance, raise).await.unwrap());
    }
    let batch = asked("batch-").into_iter().map(|raise| (one.instance, raise)).collect();
    let batch = run.store.raise_all(batch).await.unwrap();

    assert_eq!(alone, batch);
    let elsewhere: Vec<bool> = alone.iter().map(|raised| raised.elsewhere).collect();
    assert_eq!(elsewhere, [true, true, false, false, true, false]);
    assert_eq!(kept("alone-"), kept("batch-"));
}

#[tokio::test]
async fn the_notification_of_a_revocation_says_all_that_a_look_would() {
    let run = Run::first().await;
    let mut listener = listen_to(&run.server).await;
    let raise = |number| Raise {
        grant: Some(Grant { settle: TTL, number }),
        drain: Some(TTL),
        ..first_raise("a \"name\" with 'quotes': ü", number)
    };
    let (one, two) = (run.store(), run.other());
    one.fences.raise(one.instance, raise(5)).await.unwrap();
    two.fences.raise(two.instance, raise(6)).await.unwrap();

    let said = next_said(&mut listener).await;
    let of_one = format!("revoked:{}:", one.instance);
    let said = listen::revocation(said.strip_prefix(&of_one).unwrap()).unwrap();

    let asked = json!({"instance": one.instance.as_i64()});
    let look: LookAnswer = run.store.call(Operation::Look, "fencegate_look", &asked).await.unwrap();
    let looked = look.revoked.into_iter().map(|row| Revocation::try_from(row).unwrap());
    assert_eq!(looked.collect::<Vec<_>>(), [said]);
}

/// Like `of_a_grant_and_a_newer_raise_at_once_one_knows_of_the_other`, with the one moment that counts made to
/// last: a single statement for all of a raise fails here every time.
#[tokio::test]
async fn a_raise_that_waited_for_a_lock_sees_the_grant_that_was_recorded_meanwhile() {
    let run = Run::first().await;
    let (one, two) = (run.store(), run.other());
    let mark = Raise { grant: None, ..first_raise("r", 5) };
    two.fences.raise(two.instance, mark).await.unwrap();
    let older = raises_asked(one.instance, &[first_raise("r", 5)]);
    let mut slow = begin(&run, "fencegate_raise", &older).await;

    let newer = two.fences.raise(two.instance, first_raise("r", 6));
    let commit = commit_once_somebody_waits(&run, &mut slow);
    let (newer, ()) = futures_util::future::join(newer, commit).await;

    let expected = Mark { rank: first_raise("r", 6).rank, confirmed: true };
    assert_eq!(newer.unwrap(), Raised { mark: expected, elsewhere: true, spent: false });
}

/// Whoever revoked it is told all the same.
#[tokio::test]
async fn a_grant_that_is_revoked_while_it_is_given_back_is_given_back() {
    let run = Run::first().await;
    let (one, two) = (run.store(), run.other());
    one.fences.raise(one.instance, first_raise("r", 5)).await.unwrap();
    let mut listener = listen_to(&run.server).await;
    let newer = raises_asked(two.instance, &[first_raise("r", 6)]);
    let mut slow = begin(&run, "fencegate_raise", &newer).await;

    let over = (Resource::new("r").unwrap(), first_over(5));
    let given_back = one.fences.give_back(one.instance, vec![over]);
    let commit = commit_once_somebody_waits(&run, &mut slow);
    let (given_back, ()) = futures_util::future::join(given_back, commit).await;

    given_back.unwrap();
    assert_eq!(run.server.sql("SELECT token FROM grants"), "6");
    let revoked = next_said(&mut listener).await;
    assert!(revoked.starts_with("revoked:"), "{revoked}");
    assert_eq!(next_said(&mut listener).await, "given_back:r");
}

/// A run that was suspended comes back to record what is in flight, while another one buries it.
#[tokio::test]
async fn a_run_that_is_buried_while_it_leaves_is_buried_with_all_that_it_left() {
    let run = Run::first().await;
    let (id, asked) =
        (run.instance.as_i64(), json!({"instance": run.instance.as_i64(), "renewals": 0}));
    let is_fenced: bool =
        run.store.call(Operation::Instance, "fencegate_fence", &asked).await.unwrap();
    assert!(is_fenced);
    let kept = json!({"resource": "r", "epoch": 1, "token": 5, "settle_ms": 1, "number": 1});
    let leave = json!({"instance": id, "ttl_ms": 1, "keep": [kept]});
    let mut slow = begin(&run, "fencegate_leave", &leave).await;

    let bury = json!({"instance": id, "settle_ms": 0});
    let buried = run.store.call::<_, u64>(Operation::Instance, "fencegate_bury", &bury);
    let commit = commit_once_somebody_waits(&run, &mut slow);
    let (buried, ()) = futures_util::future::join(buried, commit).await;

    assert_eq!(buried.unwrap(), 0, "it has not settled");
    let bury = json!({"instance": id, "settle_ms": 1});
    let buried: u64 = run.store.call(Operation::Instance, "fencegate_bury", &bury).await.unwrap();
    assert_eq!(buried, 1);
}

#[tokio::test]
async fn grants_that_are_given_back_at_once_share_calls_and_go_by_their_run() {
    const MANY: usize = 600;
    let run = Run::first().await;
    for id in [run.instance.as_i64(), run.other.1.as_i64()] {
        run.server.sql(&format!(
            "INSERT INTO grants SELECT 'r' || n, 1, 5, {id}, 1, 1 FROM generate_series(1, {MANY}) n"
        ));
    }
    let over = |instance, number: usize| {
        let resource = Resource::new(&format!("r{number}")).unwrap();
        run.fences.give_back(instance, vec![(resource, first_over(5))])
    };
    let mine = (1..=MANY).map(|number| over(run.instance, number));
    let all: Vec<_> = mine.chain([over(run.other.1, 7)]).collect();
    for given_back in futures_util::future::join_all(all).await {
        given_back.unwrap();
    }
    let left = run.server.sql("SELECT count(*) FROM grants");
    assert_eq!(left, (MANY - 1).to_string());
    let last = run.server.sql("SELECT count(*) FROM grants WHERE resource = 'r7'");
    assert_eq!(last, "0");
}

#[tokio::test]
async fn more_grants_than_one_call_deletes_are_given_back_all_the_same() {
    const MANY: usize = 12_000;
    let run = Run::first().await;
    let id = run.instance.as_i64();
    run.server.sql(&format!(
        "INSERT INTO grants SELECT 'r' || n, 1, 5, {id}, 1, 1 FROM generate_series(1, {MANY}) n"
    ));
    let kept = (Resource::new("r7").unwrap(), Rank::first(Token::from_i64(5).unwrap()));
    run.fences.give_back_all_but(run.instance, vec![kept]).await.unwrap();
    assert_eq!(run.server.sql("SELECT string_agg(resource, ' ') FROM grants"), "r7");
}

contract::tests!(Run::first());
history_contract::tests!(Run::first());
contract::shared_tests!(Run::first());
