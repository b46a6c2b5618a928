//! What the start refuses, and the ways to the server that it takes.

use super::*;
use crate::fence::{OverGrant, Resource};
use crate::servers::pgbouncer::PgBouncer;
use crate::servers::postgres::url_at;
use crate::store::FenceStore;

async fn refused(url: &str) -> ConnectError {
    open(url).await.expect_err("it is refused")
}

#[tokio::test]
async fn a_server_that_does_not_keep_what_it_confirms_is_refused() {
    let server = Server_::start();
    let set = |setting: &str| {
        server.sql(&format!("ALTER SYSTEM SET {setting}"));
        server.sql("SELECT pg_reload_conf()");
    };
    let is_shown = |name: &str, value: &str| {
        crate::servers::wait_until("the setting is in force", || {
            server.sql(&format!("SHOW {name}")) == value
        });
    };
    for (name, value, others) in [
        ("fsync", "off", ""),
        ("synchronous_commit", "off", ""),
        ("synchronous_commit", "local", "nobody"),
        ("synchronous_commit", "remote_write", "nobody"),
    ] {
        set(&format!("{name} = {value}"));
        set(&format!("synchronous_standby_names = '{others}'"));
        is_shown(name, value);
        is_shown("synchronous_standby_names", others);
        let error = refused(&server.url()).await;
        let said = error.to_string();
        assert!(matches!(error, ConnectError::NotDurable(..)) && said.contains(name), "{said}");
        set(&format!("{name} = on"));
    }
    set("synchronous_standby_names = ''");
    set("synchronous_commit = local");
    is_shown("synchronous_commit", "local");
    is_shown("synchronous_standby_names", "");
    is_shown("fsync", "on");
    open(&server.url()).await.unwrap();
}

#[tokio::test]
async fn a_standby_is_refused() {
    let server = Server_::start();
    let standby = server.standby("standby");
    assert!(matches!(refused(&standby.url()).await, ConnectError::Standby(_)));
}

#[tokio::test]
async fn nobody_and_a_wrong_password_are_told_apart() {
    let server = Server_::start();
    server.sql("CREATE ROLE other LOGIN PASSWORD 'right'; GRANT CREATE ON SCHEMA public TO other");
    let with = |password: &str| server.url().replace("fencegate@", &format!("other:{password}@"));
    let error = refused(&with("wrong")).await;
    assert!(matches!(error, ConnectError::Refused(..)), "{error}");
    assert!(!format!("{error:?} {error}").contains("wrong"));
    // Not a superuser, and needs no more than its schema.
    let store = open(&with("right")).await.unwrap();
    join(&store).await;
    let nobody = crate::servers::free_port();
    assert!(matches!(refused(&url_at(nobody)).await, ConnectError::Unreachable(..)));
}

#[tokio::test]
async fn a_schema_of_another_version_is_refused() {
    let server = Server_::start();
    let by_command = PostgresSettings { migrate: Migrate::ByCommand, ..settings(&server.url()) };
    let open = async |settings: &PostgresSettings| {
        let metrics = StoreMetrics::register(&prometheus::Registry::new()).unwrap();
        Postgres::open(settings, Clock::new(), &TaskTracker::new(), metrics).await.map(|_| ())
    };
    assert!(matches!(open(&by_command).await, Err(ConnectError::OlderSchema(_))));
    assert_eq!(migrate(&by_command).await.unwrap(), MigrateOutcome::Migrated);
    assert_eq!(migrate(&by_command).await.unwrap(), MigrateOutcome::WasCurrent);
    open(&by_command).await.unwrap();
    server.sql(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'later', true, '', 0)",
    );
    let error = open(&settings(&server.url())).await;
    assert!(matches!(error, Err(ConnectError::NewerSchema(_, 9999))), "{error:?}");
}

#[tokio::test]
async fn instances_that_start_together_bring_the_schema_up_to_date_once() {
    let server = Server_::start();
    let url = server.url();
    let all = futures_util::future::join_all((0..6).map(|_| open(&url))).await;
    for opened in all {
        opened.unwrap();
    }
}

/// What a pooler in transaction mode has to bear: every operation, many at a time, over two connections.
#[tokio::test]
async fn all_but_listening_works_through_a_pooler_in_transaction_mode() {
    let server = Server_::start();
    let pooler = PgBouncer::before(server.port());
    let settings = PostgresSettings {
        pooled: PostgresUrl::parse(&url_at(pooler.port)).unwrap(),
        ..settings(&server.url())
    };
    let store = open_with(&settings).await.unwrap();
    let fences = PostgresFences::new(&store, &TaskTracker::new());
    let instance = join(&store).await;
    let work = (0..200).map(async |nth| {
        let raise = first_raise(&format!("r'{nth}\\"), nth + 1);
        let (resource, rank) = (raise.resource.clone(), raise.rank);
        assert_eq!(fences.raise(instance, raise).await.unwrap().mark.rank, rank);
        assert_eq!(fences.load(resource.clone()).await.unwrap().mark.unwrap().rank, rank);
        assert!(!fences.is_granted_elsewhere(instance, resource.clone(), rank).await.unwrap());
        assert_eq!(fences.show(resource.clone()).await.unwrap().unwrap().resource, resource);
        fences
            .give_back(instance, vec![(resource, OverGrant { rank, number: Some(1) })])
            .await
            .unwrap();
    });
    futures_util::future::join_all(work).await;
    assert_eq!(server.sql("SELECT count(*) FROM fences"), "200");
    assert_eq!(server.sql("SELECT count(*) FROM grants"), "0");
}

#[tokio::test]
async fn a_pooler_in_the_place_of_the_server_is_named() {
    let server = Server_::start();
    let pooler = PgBouncer::before(server.port());
    let error = refused(&url_at(pooler.port)).await;
    assert!(matches!(error, ConnectError::Pooler(..)), "{error:?}");
    assert!(error.to_string().contains("name it in store.listen_url"), "{error}");
}

/// Its sessions are found by one start with what an earlier one left in them.
#[tokio::test]
async fn a_pooler_that_says_nothing_of_what_it_cannot_keep_is_named_as_well() {
    let server = Server_::start();
    let pooler = PgBouncer::silent_before(server.port());
    for _ in 0..20 {
        if let Err(error) = open(&url_at(pooler.port)).await {
            assert!(matches!(error, ConnectError::Pooler(..)), "{error:?}");
            return;
        }
    }
    panic!("it was not noticed");
}

/// The task of a call goes on, and its connection is as good as before.
#[tokio::test]
async fn a_caller_that_stops_waiting_spoils_no_connection() {
    let server = Server_::start();
    let store = open(&server.url()).await.unwrap();
    let fences = PostgresFences::new(&store, &TaskTracker::new());
    for _ in 0..100 {
        let mut show = Box::pin(fences.show(Resource::new("r").unwrap()));
        assert!(futures_util::poll!(&mut show).is_pending());
        drop(show);
    }
    for _ in 0..20 {
        assert!(fences.show(Resource::new("r").unwrap()).await.unwrap().is_none());
    }
}

/// The commit waits for a standby that is not there, and most of the call's time went by before.
#[tokio::test]
async fn a_call_that_runs_out_of_time_leaves_no_connection_that_the_next_one_waits_for() {
    let server = Server_::start();
    let one = PostgresSettings { connections: 1, ..settings(&server.url()) };
    let store = open_with(&one).await.unwrap();
    let fences = PostgresFences::new(&store, &TaskTracker::new());
    let instance = join(&store).await;
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.sql("SELECT pg_reload_conf()");
    let held = store.0.pool.acquire().await.unwrap();

    let raised = fences.raise(instance, first_raise("r", 5));
    let let_go = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(held);
    };
    let (raised, ()) = futures_util::future::join(raised, let_go).await;
    raised.unwrap_err();

    let shown = fences.show(Resource::new("r").unwrap()).await.unwrap();
    assert!(shown.is_none(), "nothing was committed");
}
