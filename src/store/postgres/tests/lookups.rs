//! What a call reads must not grow with what else is in the tables, whatever the server took them for when it made its
//! plans.

use super::wire::Named;
use super::*;

/// Grants of each of two runs, and fences.
const MANY: u32 = 20_000;
/// What a call may read for each resource: an entry of each index and a row of each table, some more than once.
const MOST: i64 = 50;
/// A run that ends.
const LEAVES: i64 = 8;

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
    let raises: Vec<_> = names.iter().map(|name| first_raise(name, token)).collect();
    raises_asked(run.instance, &raises)
}

/// Each takes the grant of the token before along, if there is one.
fn raises_with_spares(run: &Run, names: &[&str], token: i64) -> Value {
    let raise =
        |name: &&str| Raise { spare: Some(first_over(token - 1)), ..first_raise(name, token) };
    raises_asked(run.instance, &names.iter().map(raise).collect::<Vec<_>>())
}

/// That of the first raise of each.
fn grants(run: &Run, names: &[&str]) -> Value {
    let raises: Vec<_> = names.iter().map(|name| first_raise(name, 1)).collect();
    let over = |raise: &Raise| json!(Named::over(&raise.resource, first_over(1)));
    json!({"instance": run.instance.as_i64(), "grants": raises.iter().map(over).collect::<Vec<_>>()})
}

/// All that is asked of few grants or marks: function, question, how many they are. `gone` is a run that is fenced, with
/// a grant that has not settled.
fn questions(run: &Run, gone: i64, token: i64) -> Vec<(&'static str, Value, i64)> {
    let elsewhere = |(nth, name)| json!({"nth": nth, "resource": name, "epoch": 1, "token": token});
    let asked: Vec<_> = ["theirs1", "theirs7"].into_iter().enumerate().map(elsewhere).collect();
    let me = run.instance.as_i64();
    let elsewhere = json!({"instance": me, "asked": asked});
    let Raise { resource, rank, confirmed, grant, .. } = first_raise("mine5", 1);
    let mark = Named::mark(&resource, Mark { rank, confirmed });
    let its_grant = grant.map(|grant| Named::grant(&resource, rank, grant));
    let assert = json!({"instance": me, "marks": [mark], "grants": [its_grant]});
    let leave = json!({"instance": LEAVES, "ttl_ms": 1, "keep": [its_grant]});
    vec![
        ("fencegate_load_with_times", json!({"resources": ["theirs1", "mine2"]}), 2),
        ("fencegate_raise", raises(run, &["theirs1"], token), 1),
        ("fencegate_raise", raises(run, &["theirs2", "theirs3", "theirs4"], token), 3),
        ("fencegate_raise", raises_with_spares(run, &["mine6"], token), 1),
        ("fencegate_raise", raises_with_spares(run, &["mine7", "mine8", "mine9"], token), 3),
        ("fencegate_elsewhere", elsewhere, 2),
        ("fencegate_give_back", grants(run, &["mine1"]), 1),
        ("fencegate_give_back", grants(run, &["mine2", "mine3", "mine4"]), 3),
        ("fencegate_assert", assert, 1),
        ("fencegate_leave", leave, 1),
        ("fencegate_look", json!({"instance": me}), 1),
        ("fencegate_look", json!({"instance": run.other.1.as_i64()}), 4),
        // The index has all entries of a run in lists, and one grant that is there keeps the list that it is in.
        ("fencegate_bury", json!({"instance": gone, "settle_ms": 1}), 10),
    ]
}

/// A few resources, then the server's own look at how many there are, then all the others.
async fn plans_read_no_more_once_tables_are_large(few: u32) {
    const GONE: i64 = 7;
    let run = Run::first().await;
    let mut session = Session::of(&run).await;
    let (one, two) = (run.instance, run.other.1);
    run.server.sql(&format!(
        "INSERT INTO instances (id, ttl_ms, fenced) VALUES ({GONE}, 1, true);
         INSERT INTO fences (resource, epoch, token, confirmed) VALUES ('unsettled', 1, 1, true);
         INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
         VALUES ('unsettled', 1, 1, {GONE}, 1000, 1)"
    ));
    // In no order, and none revoked.
    let fill = |to: u32| {
        run.server.sql(&format!(
            "INSERT INTO fences (resource, epoch, token, confirmed)
             SELECT whose || n, 1, 1, true
             FROM generate_series(1, {to}) n, unnest(ARRAY['mine', 'theirs']) whose
             ON CONFLICT DO NOTHING;
             UPDATE grants SET revoked = false;
             INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
             SELECT whose || n, 1, 1, run, 1, 1
             FROM (VALUES ('mine', {one}, {to}), ('theirs', {two}, {to}), ('gone', {GONE}, {few}))
                 AS v (whose, run, all_of_it), generate_series(1, all_of_it) n
             WHERE (whose || n, run) NOT IN (SELECT resource, instance FROM grants)
             ORDER BY random()"
        ))
    };
    fill(few);
    run.server.sql("VACUUM ANALYZE");
    // A plan is kept from the sixth time on.
    for token in 2..10 {
        for (function, asked, _) in questions(&run, GONE, token) {
            session.call(function, &asked).await;
        }
        fill(few);
    }
    fill(MANY);
    // The few that have settled, and then a look that finds them gone.
    for _ in 0..2 {
        session.call("fencegate_bury", &json!({"instance": GONE, "settle_ms": 1})).await;
    }

    let mut too_many = Vec::new();
    for (function, asked, resources) in questions(&run, GONE, 10) {
        let reads = session.reads(function, &asked).await;
        if reads > MOST * resources {
            too_many.push((function, resources, reads));
        }
    }
    assert_eq!(too_many, []);
    let rewritten = run.server.sql(
        "SELECT string_agg(resource || ' ' || token, ', ' ORDER BY resource) FROM grants
         WHERE resource ~ '^mine[6-9]$'",
    );
    assert_eq!(rewritten, "mine6 10, mine7 10, mine8 10, mine9 10");
    let given_back = run.server.sql("SELECT count(*) FROM grants WHERE resource ~ '^mine[1-4]$'");
    assert_eq!(given_back, "0");
    let revoked = run.server.sql(
        "SELECT string_agg(resource, ' ' ORDER BY resource) FROM grants WHERE revoked AND token = 1",
    );
    assert_eq!(revoked, "theirs1 theirs2 theirs3 theirs4");
    assert_eq!(run.server.sql("SELECT resource FROM grants WHERE instance = 7"), "unsettled");
}

#[tokio::test]
async fn plans_that_were_made_for_small_tables_read_no_more_once_these_are_large() {
    plans_read_no_more_once_tables_are_large(5).await;
}

#[tokio::test]
async fn plans_that_were_made_for_middling_tables_read_no_more_once_these_are_large() {
    plans_read_no_more_once_tables_are_large(1_000).await;
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

    let question = |name| json!({"nth": 0, "resource": name, "epoch": 1, "token": 1002});
    let elsewhere = |name| json!({"instance": run.instance.as_i64(), "asked": [question(name)]});
    session.call("fencegate_elsewhere", &elsewhere("r9")).await;
    let asked = session.reads("fencegate_elsewhere", &elsewhere("r9")).await;

    assert!(together < 3 * MOST && alone < MOST, "{together}, {alone}");
    assert!(asked < MOST, "{asked}");
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
