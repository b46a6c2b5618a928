//! Several gateways on one PostgreSQL server, and what each may do while another one is slow, dead, suspended or
//! cut off.

mod server;

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::servers::postgres::{Postgres, url_at};
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, Connection, assert_problem, request, send};
use crate::support::wait_until;
use crate::support::wire::Wire;

/// Of the gateways' leases in these tests.
const TTL: Duration = Duration::from_secs(2);
/// Of the API in these tests.
const SETTLE: Duration = Duration::from_secs(1);
/// Long enough to see that something does not happen.
const A_WHILE: Duration = Duration::from_millis(600);

fn store(port: u16) -> String {
    format!("url = \"{}\"\ninstance_ttl = \"2s\"", url_at(port))
}

fn start(api: &Downstream, port: u16) -> Gateway {
    let mut gateway = Gateway::one_of_several(api.address, &store(port), &url_at(port));
    gateway.start();
    gateway
}

fn put_later(gateway: &Gateway, path: &str, token: u64) -> JoinHandle<Answer> {
    let (proxy, path) = (gateway.proxy, path.to_owned());
    thread::spawn(move || send(proxy, "PUT", &path, &[("Fencing-Token", &token.to_string())], b"x"))
}

/// How often something happened, by the gateway's own count.
fn count(gateway: &Gateway, metric: &str) -> u64 {
    let text = gateway.admin_text("/metrics");
    let line = text.lines().find(|line| line.starts_with(metric) && !line.starts_with('#'));
    let value = line.and_then(|line| line.rsplit_once(' ')).expect("it is there from the start").1;
    value.parse().expect("a whole number")
}

/// Whether no smaller token follows a greater one.
fn is_ordered(tokens: &[u64]) -> bool {
    tokens.is_sorted()
}

#[test]
fn a_newer_write_waits_for_an_older_one_at_another_gateway() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let [one, two] = [start(&api, server.port()), start(&api, server.port())];
    api.behave("/x", Behaviour::Hold);
    let older = put_later(&one, "/x", 5);
    api.wait_for(1);
    let newer = put_later(&two, "/x", 6);
    thread::sleep(A_WHILE);
    assert_eq!(api.tokens("/x"), [5]);
    assert_eq!(one.put("/x", 5, "more").code(), "stale_fencing_token", "it was revoked");

    api.behave("/x", Behaviour::Answer);
    let began = Instant::now();
    api.let_go("/x");

    assert_eq!(older.join().expect("an answer").status, 200);
    assert_eq!(newer.join().expect("an answer").status, 200);
    assert!(began.elapsed() < SETTLE, "nothing was in doubt: {:?}", began.elapsed());
    assert_eq!(api.tokens("/x"), [5, 6]);
    assert_eq!(one.put("/x", 6, "y").status, 200, "the same token goes on everywhere");
    assert_eq!(one.mark("/x"), Some(6));
}

#[test]
fn a_newer_write_waits_for_an_older_one_whose_client_is_gone() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let [one, two] = [start(&api, server.port()), start(&api, server.port())];
    api.behave("/x", Behaviour::Hold);
    let mut client = Connection::open(one.proxy);
    client.write(request("PUT", "/x", &[("Fencing-Token", "5")], b"x"));
    api.wait_for(1);
    drop(client);
    let newer = put_later(&two, "/x", 6);
    thread::sleep(A_WHILE);
    assert_eq!(api.tokens("/x"), [5]);
    api.behave("/x", Behaviour::Answer);
    api.let_go("/x");
    assert_eq!(newer.join().expect("an answer").status, 200);
}

#[test]
fn an_older_write_that_does_not_end_is_cut_at_the_other_gateway_and_then_settles() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let [one, two] = [start(&api, server.port()), start(&api, server.port())];
    api.behave("/x", Behaviour::Silence);
    let older = put_later(&one, "/x", 5);
    api.wait_for(1);
    api.behave("/x", Behaviour::Answer);
    let began = Instant::now();

    assert_eq!(two.put("/x", 6, "x").status, 200);

    assert!(began.elapsed() >= Duration::from_secs(1) + SETTLE, "{:?}", began.elapsed());
    let older = older.join().expect("an answer");
    assert_problem(&older, 502, "upstream_outcome_unknown", "unknown");
}

#[test]
fn after_a_killed_gateway_the_same_token_goes_on_at_once_and_a_newer_one_when_it_has_settled() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let [mut one, two] = [start(&api, server.port()), start(&api, server.port())];
    api.behave("/x", Behaviour::Silence);
    let older = put_later(&one, "/x", 5);
    api.wait_for(1);
    api.behave("/x", Behaviour::Answer);
    one.kill();
    let killed = Instant::now();
    assert!(older.is_finished() || older.join().is_err());
    assert_eq!(two.put("/x", 5, "x").status, 200);
    assert!(killed.elapsed() < TTL, "{:?}", killed.elapsed());

    assert_eq!(two.put("/x", 6, "x").status, 200);

    assert!(killed.elapsed() >= TTL * 2 / 3 + SETTLE, "{:?}", killed.elapsed());
    assert_eq!(api.tokens("/x"), [5, 5, 6]);
    assert_eq!(count(&two, "fencegate_instances_fenced_total"), 1);
    wait_until("nothing is left of it", || {
        server.sql("SELECT count(*) FROM instances") == "1"
            && server.sql("SELECT count(*) FROM grants") == "1"
    });
}

#[test]
fn a_holders_writes_do_not_ask_the_store() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let gateways = [0, 1, 2].map(|_| start(&api, server.port()));
    let asked = |gateway: &Gateway| {
        ["load", "raise", "elsewhere", "give_back"].map(|operation| {
            let series =
                format!("fencegate_store_duration_seconds_count{{operation=\"{operation}\"}}");
            count(gateway, &series)
        })
    };
    for gateway in &gateways {
        assert_eq!(gateway.put("/x", 5, "x").status, 200);
    }
    let before = gateways.each_ref().map(asked);
    for gateway in &gateways {
        for _ in 0..200 {
            assert_eq!(gateway.put("/x", 5, "x").status, 200);
        }
    }
    assert_eq!(gateways.each_ref().map(asked), before);
}

#[test]
fn a_resource_whose_token_grows_has_its_records_rewritten_and_in_the_end_one() {
    const LAST: u64 = 100;
    let (api, server) = (Downstream::start(), Postgres::start());
    let one = start(&api, server.port());
    for token in 1..=LAST {
        assert_eq!(one.put("/x", token, "x").status, 200);
    }
    let counted = |column: &str| {
        server.sql(&format!("SELECT {column} FROM pg_stat_user_tables WHERE relname = 'grants'"))
    };
    wait_until("the server has counted", || counted("n_tup_ins + n_tup_upd") == LAST.to_string());
    assert_eq!(counted("n_tup_ins"), "2", "one for the token, one for the token before");
    let kept = || server.sql("SELECT string_agg(token::text, ' ') FROM grants");
    wait_until("what is over is given back", || kept() == LAST.to_string());
}

#[test]
fn tokens_that_grow_at_two_gateways_by_turns_are_let_in_one_after_the_other() {
    const LAST: u64 = 60;
    let (api, server) = (Downstream::start(), Postgres::start());
    let gateways = [start(&api, server.port()), start(&api, server.port())];
    // Twice here, then twice there: each has a grant of its own that is over when it raises again.
    for token in 1..=LAST {
        let gateway = &gateways[usize::from(token % 4 >= 2)];
        assert_eq!(gateway.put("/x", token, "x").status, 200, "{token}");
    }
    assert_eq!(api.tokens("/x"), (1..=LAST).collect::<Vec<_>>());
    for gateway in &gateways {
        assert_eq!(gateway.put("/x", LAST - 1, "late").code(), "stale_fencing_token");
    }
    let kept = || server.sql("SELECT string_agg(token::text, ' ') FROM grants");
    wait_until("what is over is given back", || kept() == LAST.to_string());
}

#[test]
fn a_clean_shutdown_makes_nobody_wait() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let [mut one, two] = [start(&api, server.port()), start(&api, server.port())];
    assert_eq!(one.put("/x", 5, "x").status, 200);
    assert!(one.stop().success());
    let began = Instant::now();
    assert_eq!(two.put("/x", 6, "x").status, 200);
    assert!(began.elapsed() < SETTLE, "{:?}", began.elapsed());
}

#[test]
fn a_gateway_that_was_suspended_for_less_than_its_lease_goes_on() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let [one, two] = [start(&api, server.port()), start(&api, server.port())];
    assert_eq!(one.put("/x", 5, "x").status, 200);
    one.signal(Signal::STOP);
    let newer = put_later(&two, "/x", 6);
    thread::sleep(A_WHILE);
    one.signal(Signal::CONT);
    assert_eq!(newer.join().expect("an answer").status, 200);
    assert_eq!(count(&one, "fencegate_instance_starts_over_total"), 0);
    assert_eq!(count(&two, "fencegate_instances_fenced_total"), 0);
    assert_eq!(one.put("/x", 5, "late").code(), "stale_fencing_token");
}

#[test]
fn a_gateway_that_was_suspended_beyond_its_lease_starts_over_and_lets_nothing_old_through() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let [one, two] = [start(&api, server.port()), start(&api, server.port())];
    assert_eq!(one.put("/x", 5, "x").status, 200);
    api.behave("/y", Behaviour::Silence);
    let in_flight = put_later(&one, "/y", 5);
    api.wait_for(2);
    api.behave("/y", Behaviour::Answer);
    let mut client = Connection::open(one.proxy);
    one.signal(Signal::STOP);
    let began = Instant::now();
    client.write(request("PUT", "/x", &[("Fencing-Token", "5")], b"while it was suspended"));

    for path in ["/x", "/y"] {
        assert_eq!(two.put(path, 6, "x").status, 200);
    }

    assert!(began.elapsed() >= TTL * 2 / 3 + SETTLE, "{:?}", began.elapsed());
    one.signal(Signal::CONT);
    let late = client.read();
    assert!(matches!(late.status, 412 | 503), "{late:?}");
    assert_problem(
        &in_flight.join().expect("an answer"),
        502,
        "upstream_outcome_unknown",
        "unknown",
    );
    wait_until("it starts over", || one.admin("/readyz").status == 200);
    assert_eq!(count(&one, "fencegate_instance_starts_over_total"), 1);
    assert_eq!(one.put("/x", 5, "late").code(), "stale_fencing_token");
    assert_eq!(one.put("/x", 7, "new").status, 200);
    assert_eq!(api.tokens("/x"), [5, 6, 7]);
}

#[test]
fn a_gateway_that_is_cut_off_from_the_store_but_not_from_the_api_stops_in_time() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let wire = Wire::to(server.port());
    let [one, two] = [start(&api, wire.port), start(&api, server.port())];
    assert_eq!(one.put("/x", 5, "x").status, 200);
    let proxy = one.proxy;
    let writer = thread::spawn(move || {
        let until = Instant::now() + TTL * 4;
        let mut last_let_in = Instant::now();
        let mut codes = Vec::new();
        while Instant::now() < until {
            let answer = send(proxy, "PUT", "/x", &[("Fencing-Token", "5")], b"x");
            if answer.status == 200 {
                last_let_in = Instant::now();
            } else {
                codes.push(answer.code());
            }
            thread::sleep(Duration::from_millis(5));
        }
        codes.dedup();
        (last_let_in, codes)
    });
    thread::sleep(A_WHILE);
    wire.cut();
    let cut = Instant::now();

    assert_eq!(two.put("/x", 6, "x").status, 200);

    let (last_let_in, codes) = writer.join().expect("no panic");
    let went_on = last_let_in.saturating_duration_since(cut);
    assert!(went_on <= TTL + A_WHILE, "it admitted for {went_on:?} after the cut");
    assert!(went_on >= TTL / 3, "it does not need the store for each write: {went_on:?}");
    assert_eq!(codes, ["fence_store_unavailable"]);
    assert!(is_ordered(&api.tokens("/x")));
    wire.mend();
    wait_until("it starts over", || one.admin("/readyz").status == 200);
    assert_eq!(one.put("/x", 5, "late").code(), "stale_fencing_token");
    assert_eq!(one.put("/x", 6, "x").status, 200);
}

#[test]
fn fifty_first_writes_at_once_over_three_gateways_are_let_in_in_order() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let gateways = [0, 1, 2].map(|_| start(&api, server.port()));
    let mut tokens: Vec<u64> = (1..=50).collect();
    let random = fastrand::Rng::new();
    random.clone().shuffle(&mut tokens);

    let answers: Vec<_> = tokens
        .iter()
        .enumerate()
        .map(|(nth, token)| put_later(&gateways[nth % 3], "/x", *token))
        .collect::<Vec<_>>();
    let answers: Vec<_> = answers.into_iter().map(|it| it.join().expect("an answer")).collect();

    for answer in &answers {
        assert!(matches!(answer.status, 200 | 412), "{answer:?}");
    }
    let accepted = api.tokens("/x");
    assert!(is_ordered(&accepted), "{accepted:?}");
    assert_eq!(accepted.last(), Some(&50));
    assert_eq!(gateways[0].mark("/x"), Some(50));
}

#[test]
fn of_fifty_first_writes_at_once_only_the_holders_is_let_in() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let (table, url) = (store(server.port()), url_at(server.port()));
    let gateways = [0, 1, 2].map(|_| {
        let mut gateway = Gateway::one_of_several_for_holders(api.address, &table, &url);
        gateway.start();
        gateway
    });
    // So that there are tokens below the holder's.
    for turn in 0..25 {
        gateways[turn % 3].acquire("/y", "another", 60_000);
    }
    let holder = gateways[1].acquire("/x", "holder", 60_000);
    let mut tokens: Vec<u64> = (holder - 24..holder + 26).collect();
    fastrand::shuffle(&mut tokens);

    let writes: Vec<_> = tokens
        .iter()
        .enumerate()
        .map(|(nth, token)| (*token, put_later(&gateways[nth % 3], "/x", *token)))
        .collect();

    for (token, write) in writes {
        let answer = write.join().expect("an answer");
        let expected = match token.cmp(&holder) {
            std::cmp::Ordering::Less => 412,
            std::cmp::Ordering::Equal => 200,
            std::cmp::Ordering::Greater => 403,
        };
        assert_eq!(answer.status, expected, "{token}, holder {holder}: {answer:?}");
    }
    assert_eq!(api.tokens("/x"), [holder]);
    assert_eq!(gateways[0].mark("/x"), Some(holder));
}

#[test]
fn many_fences_in_the_database_cost_nothing_at_the_start() {
    let (api, server) = (Downstream::start(), Postgres::start());
    drop(start(&api, server.port()));
    server.sql(
        "INSERT INTO fences (resource, epoch, token, confirmed)
         SELECT '/x/' || n, 1, 5, true FROM generate_series(1, 1000000) AS n;
         ANALYZE fences; SELECT pg_stat_reset()",
    );

    let gateway = start(&api, server.port());
    assert_eq!(gateway.put("/x/77", 4, "x").code(), "stale_fencing_token");
    assert_eq!(gateway.put("/x/77", 6, "x").status, 200);

    // What a session counted comes with its end at the latest.
    drop(gateway);
    wait_until("the table was used", || {
        server.sql("SELECT idx_scan > 0 FROM pg_stat_user_tables WHERE relname = 'fences'") == "t"
    });
    let read = server.sql(
        "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) < 100
         FROM pg_stat_user_tables WHERE relname = 'fences'",
    );
    assert_eq!(read, "t", "the table is never read as a whole");
    assert_eq!(server.sql("SELECT count(*) FROM fences"), "1000000", "no row is ever deleted");
}

#[test]
fn a_rolling_restart_fails_no_write() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let mut gateways = [0, 1, 2].map(|_| start(&api, server.port()));
    let mut token = 0;
    for out in 0..3 {
        let rest: Vec<_> = (0..3).filter(|nth| *nth != out).collect();
        assert!(gateways[out].stop().success());
        for nth in rest.iter().chain(&rest) {
            token += 1;
            for path in ["/a", "/b", "/c"] {
                assert_eq!(gateways[*nth].put(path, token, "x").status, 200);
            }
        }
        gateways[out].start();
        assert_eq!(gateways[out].put("/a", token, "x").status, 200);
    }
    assert!(is_ordered(&api.tokens("/a")));
}
