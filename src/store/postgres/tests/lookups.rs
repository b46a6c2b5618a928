//! What a call reads must not grow with what else is in the tables, whatever the server took them for when it made its
//! plans.

use serde_json::Value;

use super::*;

/// Grants of each of two runs, and fences.
const MANY: u32 = 20_000;
/// What a call may read for each resource: an entry of each index and a row of each table, some more than once.
const MOST: i64 = 50;

/// A session that keeps its plans, as those of the gateway do.
struct Session<'a> {
    server: &'a Server_,
    connection: PgConnection,
}

impl Session<'_> {
    async fn of(run: &Run) -> Session<'_> {
        // Nothing of the server's own comes in between.
        run.server.sql(
            "ALTER TABLE grants SET (autovacuum_enabled = off);
             ALTER TABLE fences SET (autovacuum_enabled = off)",
        );
        let connection = connect::connect(&run.store.0.direct).await.unwrap();
        Session { server: &run.server, connection }
    }

    async fn call(&mut self, function: &str, asked: &Value) {
        let sql = format!("SELECT {function}('{asked}')::text");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut self.connection).await.unwrap();
    }

    /// Entries of indexes and rows of tables that this call reads.
    async fn reads(&mut self, function: &str, asked: &Value) -> i64 {
        let before = self.read_so_far().await;
        self.call(function, asked).await;
        self.read_so_far().await - before
    }

    async fn read_so_far(&mut self) -> i64 {
        let flush = sqlx::raw_sql("SELECT pg_stat_force_next_flush()");
        flush.execute(&mut self.connection).await.unwrap();
        let read = self.server.sql(
            "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)
                + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables)",
        );
        read.parse().unwrap()
    }
}

fn raises(run: &Run, names: &[&str], token: i64) -> Value {
    let raises = names.iter().map(|name| first_raise(name, token)).collect::<Vec<_>>();
    let raises: Vec<_> =
        raises.iter().enumerate().map(|(nth, it)| wire::Asked::new(nth, it)).collect();
    json!({"instance": run.instance.as_i64(), "raises": raises})
}

fn grants(run: &Run, names: &[&str], token: i64) -> Value {
    let named = |name: &&str| json!({"resource": name, "epoch": 1, "token": token, "number": 1});
    json!({"instance": run.instance.as_i64(), "grants": names.iter().map(named).collect::<Vec<_>>()})
}

/// All that is asked about single resources: function, question, how many resources.
fn questions(run: &Run, token: i64) -> Vec<(&'static str, Value, i64)> {
    let elsewhere = |(nth, name)| json!({"nth": nth, "resource": name, "epoch": 1, "token": token});
    let asked: Vec<_> = ["theirs1", "theirs7"].into_iter().enumerate().map(elsewhere).collect();
    let elsewhere = json!({"instance": run.instance.as_i64(), "asked": asked});
    vec![
        ("fencegate_load_with_times", json!({"resources": ["theirs1", "mine2"]}), 2),
        ("fencegate_raise", raises(run, &["theirs1"], token), 1),
        ("fencegate_raise", raises(run, &["theirs2", "theirs3", "theirs4"], token), 3),
        ("fencegate_elsewhere", elsewhere, 2),
        ("fencegate_give_back", grants(run, &["mine1"], 1), 1),
        ("fencegate_give_back", grants(run, &["mine2", "mine3", "mine4"], 1), 3),
    ]
}

/// Five resources, then the server's own look at how many there are, then all the others.
#[tokio::test]
async fn plans_that_were_made_for_small_tables_read_no_more_once_these_are_large() {
    let run = Run::first().await;
    let mut session = Session::of(&run).await;
    let (one, two) = (run.instance, run.other.1);
    let fill = |from: u32, to: u32| {
        run.server.sql(&format!(
            "INSERT INTO fences (resource, epoch, token, confirmed)
             SELECT whose || n, 1, 1, true
             FROM generate_series({from}, {to}) n, unnest(ARRAY['mine', 'theirs']) whose
             ON CONFLICT DO NOTHING;
             INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
             SELECT 'mine' || n, 1, 1, {one}, 1, 1 FROM generate_series({from}, {to}) n
             UNION ALL
             SELECT 'theirs' || n, 1, 1, {two}, 1, 1 FROM generate_series({from}, {to}) n
             ON CONFLICT DO NOTHING"
        ))
    };
    fill(1, 5);
    run.server.sql("ANALYZE");
    // A plan is kept from the sixth time on.
    for token in 2..10 {
        for (function, asked, _) in questions(&run, token) {
            session.call(function, &asked).await;
        }
    }
    fill(1, MANY);

    let mut too_many = Vec::new();
    for (function, asked, resources) in questions(&run, 10) {
        let reads = session.reads(function, &asked).await;
        if reads > MOST * resources {
            too_many.push((function, resources, reads));
        }
    }
    assert_eq!(too_many, []);
    let given_back = run.server.sql("SELECT count(*) FROM grants WHERE resource ~ '^mine[1-4]$'");
    assert_eq!(given_back, "0");
    let revoked = run.server.sql(
        "SELECT string_agg(resource, ' ' ORDER BY resource) FROM grants WHERE revoked AND token = 1",
    );
    assert_eq!(revoked, "theirs1 theirs2 theirs3 theirs4");
}

/// Grants that are gone stay in the indexes until the server comes to clean up.
#[tokio::test]
async fn past_grants_of_others_are_not_read_by_raise_after_raise() {
    const PAST: i64 = 4 * MOST;
    let run = Run::first().await;
    let mut session = Session::of(&run).await;
    let other = run.other.1;
    run.server.sql(&format!(
        "INSERT INTO fences (resource, epoch, token, confirmed)
         SELECT 'r' || n, 1, 1, true FROM generate_series(1, 100) n;
         INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
         SELECT 'r' || n, 1, token, {other}, 1, 1
         FROM generate_series(1, {PAST}) token, generate_series(1, 100) n"
    ));
    run.server.sql(&format!("DELETE FROM grants WHERE instance = {other}"));
    let names = ["r1", "r2", "r3"];

    // The first one meets them.
    session.call("fencegate_raise", &raises(&run, &names, 1000)).await;
    let together = session.reads("fencegate_raise", &raises(&run, &names, 1001)).await;
    let alone = session.reads("fencegate_raise", &raises(&run, &["r1"], 1002)).await;

    assert!(together < 3 * MOST && alone < MOST, "{together}, {alone}");
}

/// To compile a plan takes a tenth of a second, in each call anew.
#[tokio::test]
async fn no_call_has_its_plans_compiled() {
    let run = Run::first().await;
    run.server.sql(
        "CREATE FUNCTION its_setting(asked jsonb) RETURNS jsonb LANGUAGE sql
         AS $$ SELECT to_jsonb(current_setting('jit')) $$",
    );
    assert_eq!(run.server.sql("SHOW jit"), "on");
    let its_setting: String =
        run.store.call(Operation::List, "its_setting", &json!({})).await.unwrap();
    assert_eq!(its_setting, "off");
}
