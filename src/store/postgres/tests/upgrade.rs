//! Gateways of the version before go on while one of this version brings the schema up to date.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use sqlx::Connection;

use super::wire::Named;
use super::*;

/// One of them, with a connection that keeps its plans.
struct Gateway<'a> {
    instance: InstanceId,
    connection: PgConnection,
    /// Shared, so that they revoke each other's grants.
    token: &'a AtomicI64,
}

impl Gateway<'_> {
    async fn call(&mut self, function: &str, asked: &Value) -> Value {
        self.attempt(function, asked).await.unwrap_or_else(|error| panic!("{function}: {error}"))
    }

    async fn attempt(&mut self, function: &str, asked: &Value) -> Result<Value, sqlx::Error> {
        let sql = format!("SELECT {function}('{asked}')");
        let call = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).persistent(false);
        call.fetch_one(&mut self.connection).await
    }

    async fn turn(&mut self) {
        let me = self.instance.as_i64();
        let token = self.token.fetch_add(1, Ordering::Relaxed);
        let raises: Vec<Raise> = ["r", "s", "t"].map(|name| first_raise(name, token)).into();
        for raises in [&raises[..1], &raises[1..]] {
            let raised = self.call("fencegate_raise", &raises_asked(self.instance, raises)).await;
            // No more columns than such a gateway reads.
            let its_columns = raised["raised"].as_array().unwrap().iter();
            assert!(its_columns.clone().all(|raised| raised.as_array().unwrap().len() == 4));
            assert_eq!(its_columns.count(), raises.len());
        }
        let over = |raise: &Raise| json!(Named::over(&raise.resource, first_over(token)));
        let over: Vec<Value> = raises.iter().map(over).collect();
        let mark = |raise: &Raise| {
            json!(Named::mark(&raise.resource, Mark { rank: raise.rank, confirmed: true }))
        };
        let marks: Vec<Value> = raises.iter().map(mark).collect();
        let grant = Named::grant(&raises[0].resource, raises[0].rank, raises[0].grant.unwrap());
        let assert = json!({"instance": me, "marks": marks, "grants": [grant]});
        // One that waits for the schema at that very moment goes on as it began. A gateway repeats it.
        if self.attempt("fencegate_assert", &assert).await.is_err() {
            self.call("fencegate_assert", &assert).await;
        }
        self.call("fencegate_look", &json!({"instance": me})).await;
        self.call("fencegate_renew", &json!({"instance": me})).await;
        self.call("fencegate_give_back", &json!({"instance": me, "grants": over})).await;
        let leave = json!({"instance": -me, "ttl_ms": 1, "keep": [grant]});
        self.call("fencegate_leave", &leave).await;
        self.call("fencegate_bury", &json!({"instance": -me, "settle_ms": i64::MAX})).await;
    }
}

struct Schema {
    connection: PgConnection,
    /// What the newest migration does.
    newest: String,
}

impl Schema {
    /// As the version before left it.
    async fn of_the_version_before(server: &Server_) -> Schema {
        let connection = PgConnection::connect(&server.url()).await.unwrap();
        let migrations = migrate::MIGRATIONS.iter();
        let mut migrations: Vec<String> =
            migrations.map(|migration| migration.sql.as_str().to_owned()).collect();
        let newest = migrations.pop().unwrap();
        let mut schema = Schema { connection, newest };
        for sql in migrations {
            schema.apply(&sql).await;
        }
        schema
    }

    async fn apply(&mut self, sql: &str) {
        let sql = format!("BEGIN; {sql}; COMMIT");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut self.connection).await.unwrap();
    }

    async fn bring_up_to_date(&mut self) {
        let newest = self.newest.clone();
        self.apply(&newest).await;
    }
}

/// A table that is written anew is empty to whoever began to read before.
#[tokio::test]
async fn who_asks_for_older_grants_and_waits_for_the_schema_is_told_of_them() {
    let server = Server_::start();
    let mut schema = Schema::of_the_version_before(&server).await;
    server.sql(
        "INSERT INTO fences (resource, epoch, token, confirmed) VALUES ('r', 1, 6, true);
         INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
         VALUES ('r', 1, 5, 1, 1000, 1), ('r', 1, 6, 2, 1000, 1)",
    );
    let mut reader = PgConnection::connect(&server.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT FROM grants").execute(&mut reader).await.unwrap();
    let are_waiting = async |count: &str| {
        until("they wait", async || {
            server.sql("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted") == count
        })
        .await;
    };
    let token = AtomicI64::new(0);
    let connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut two = Gateway { instance: InstanceId::from_i64(2), connection, token: &token };
    let asked = json!({"nth": 0, "resource": "r", "epoch": 1, "token": 6});
    let asked = json!({"instance": 2, "asked": [asked]});
    let elsewhere = async {
        are_waiting("1").await;
        two.call("fencegate_elsewhere", &asked).await
    };
    let let_go = async {
        are_waiting("2").await;
        sqlx::raw_sql("COMMIT").execute(&mut reader).await.unwrap();
    };

    let ((), elsewhere, ()) =
        futures_util::future::join3(schema.bring_up_to_date(), elsewhere, let_go).await;

    assert_eq!(elsewhere["elsewhere"], json!([true]));
}

#[tokio::test]
async fn no_call_of_the_version_before_fails_while_the_schema_is_brought_up_to_date() {
    let server = Server_::start();
    let mut schema = Schema::of_the_version_before(&server).await;
    let (token, turns, is_over) = (AtomicI64::new(1), AtomicI64::new(0), AtomicBool::new(false));
    let gateway = async |id: i64| {
        server.sql(&format!("INSERT INTO instances (id, ttl_ms) VALUES ({id}, 10000)"));
        let connection = PgConnection::connect(&server.url()).await.unwrap();
        let mut gateway = Gateway { instance: InstanceId::from_i64(id), connection, token: &token };
        while !is_over.load(Ordering::Relaxed) {
            gateway.turn().await;
            turns.fetch_add(1, Ordering::Relaxed);
        }
    };
    let some_turns = async || {
        let enough = turns.load(Ordering::Relaxed) + 100;
        until("they go on", async || turns.load(Ordering::Relaxed) >= enough).await;
    };
    let upgrade = async {
        some_turns().await;
        schema.bring_up_to_date().await;
        some_turns().await;
        is_over.store(true, Ordering::Relaxed);
    };
    let all = futures_util::future::join4(gateway(1), gateway(2), gateway(3), upgrade);
    tokio::time::timeout(4 * SOON, all).await.expect("they hang");

    // A burial passes over what somebody is revoking.
    server.sql(
        "SELECT fencegate_bury(jsonb_build_object('instance', id, 'settle_ms', settle_ms))
         FROM instances JOIN grants ON instance = id WHERE fenced",
    );
    assert_eq!(server.sql("SELECT count(*) FROM grants"), "0");
}
