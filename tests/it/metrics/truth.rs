//! Numbers that operators act on, while what they tell of is going on.

use std::thread;
use std::time::Instant;

use super::*;
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::wait_until;

#[test]
fn a_late_write_is_measured_by_how_long_the_newer_token_has_been_there() {
    let api = Downstream::start();
    let mut gateway = Gateway::ordered(api.address, "");
    assert_eq!(gateway.put("/x", 5, "x").status, 200);
    let accepted = Instant::now();
    // A gateway that only read of the newer token in its store knows it too.
    gateway.stop();
    gateway.start();

    let waited = accepted.elapsed().as_secs_f64();
    assert_eq!(gateway.put("/x", 4, "late").code(), "stale_fencing_token");

    let scrape = scrape(&gateway);
    let series = |what| format!("fencegate_stale_write_age_seconds_{what}{{route=\"all\"}}");
    assert_eq!(scrape.value(&series("count")), 1.0);
    let age = scrape.value(&series("sum"));
    // The store keeps milliseconds.
    assert!(age >= waited - 0.01 && age < waited + 3600.0, "{age} s, and {waited} s had passed");
}

#[test]
fn a_drain_shows_while_it_goes_on() {
    let api = Downstream::start();
    let gateway =
        Gateway::with_route(api.address, "tokens = \"ordered\"\ndrain = \"60s\"\nwait = \"60s\"\n");
    api.behave("/x", Behaviour::Hold);
    let value = |series: &str| scrape(&gateway).value(series);
    let waiting = || value("fencegate_draining_writes");
    thread::scope(|scope| {
        let older = scope.spawn(|| gateway.put("/x", 5, "older").status);
        api.wait_for(1);
        wait_until("a write in flight is counted", || value("fencegate_in_flight_writes") == 1.0);
        assert_eq!(value("fencegate_drain_age_seconds"), 0.0);
        let newer = scope.spawn(|| gateway.put("/x", 6, "newer").status);
        wait_until("the newer one waits", || waiting() == 1.0);
        assert_eq!(value("fencegate_waiting_writes"), 1.0);
        wait_until("the drain is old", || value("fencegate_drain_age_seconds") > 0.0);

        api.let_go("/x");
        assert_eq!(older.join().expect("no panic"), 200);
        api.wait_for(2);
        assert_eq!((waiting(), value("fencegate_waiting_writes")), (0.0, 0.0));
        api.let_go("/x");
        assert_eq!(newer.join().expect("no panic"), 200);
    });
    wait_until("it is over", || value("fencegate_drain_age_seconds") == 0.0);
    wait_until("nothing is in flight", || value("fencegate_in_flight_writes") == 0.0);
    let decided = |decision| {
        let labels = format!("decision=\"{decision}\",path=\"waited\",route=\"all\"");
        value(&format!("fencegate_admission_decisions_total{{{labels}}}"))
    };
    assert_eq!((decided("admitted"), decided("refused")), (2.0, 0.0));
}

#[test]
fn leases_that_are_held_are_counted() {
    let api = Downstream::start();
    let mut gateway = Gateway::ordered(api.address, "");
    for number in 0..3 {
        gateway.acquire(&format!("r{number}"), "a", 600_000);
    }
    gateway.stop();
    gateway.start();
    wait_until("leases were counted", || {
        scrape(&gateway).series.get("fencegate_leases_held") == Some(&3.0)
    });
}

#[test]
fn tokens_of_the_named_resources_are_metrics() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"60s\"\n\
         [[route]]\nname = \"held\"\npath = \"/held/{{*rest}}\"\n\
         [metrics]\nresources = [\"/held/x\"]\n",
        api.address
    ));
    let a = gateway.acquire("/held/x", "a", 60_000);
    assert_eq!(gateway.put("/held/x", a, "a").status, 200);
    gateway.release("/held/x", "a", a);
    let b = gateway.acquire("/held/x", "b", 60_000);

    let scrape = scrape(&gateway);

    let token = |kind| {
        scrape
            .value(&format!("fencegate_token{{kind=\"{kind}\",resource=\"/held/x\"}}"))
            .to_string()
    };
    assert_eq!([token("highest"), token("current")], [a.to_string(), b.to_string()]);
}
