//! Chaos: real processes that are killed, suspended and cut off from each other at random, while workers
//! fight over a few resources of an API. Then the API's record is held against the promise.
//!
//! `FENCEGATE_CHAOS_SECONDS` sets for how long, `FENCEGATE_CHAOS_SEED` repeats the plan of an earlier run; see
//! `docs/testing.md`.

#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::panic, reason = "that is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "a test measures with whatever clock it likes")]

mod api;
mod arena;
#[path = "../it/fight/chance.rs"]
mod chance;
mod check;
mod database;
mod fight;
mod gateway;
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
#[path = "../it/support/http.rs"]
mod http;
mod link;
mod members;
mod nemesis;
mod notes;
mod plan;
mod process;
mod record;
#[path = "../servers.rs"]
mod servers;
mod workers;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fight::{Story, fight};
use notes::Told;
use plan::Shape;
use process::Part;

/// Longer than anything takes on a loaded machine; reached only when a test fails.
const SOON: Duration = Duration::from_secs(30);

/// One gateway with SQLite and its own coordinator.
const ONE_MACHINE: Shape =
    Shape { workers: 20, resources: 10, gateways: 1, etcd_members: 0, has_database: false };

/// Three gateways that share etcd and PostgreSQL.
const CLUSTER: Shape =
    Shape { workers: 24, resources: 10, gateways: 3, etcd_members: 3, has_database: true };

/// No test: what this executable is when it is started as a part of one.
#[test]
fn part_of_a_chaos_test() {
    let Some(part) = Part::from_environment() else { return };
    let dir = PathBuf::from(std::env::var("CHAOS_DIR").expect("told by its starter"));
    let seed = number_from_environment("CHAOS_SEED").expect("told by its starter");
    match part {
        Part::Api => api::main(&dir, seed),
        Part::Writer => writer::main(&dir, seed),
    }
}

#[cfg(not(feature = "broken-drain"))]
#[test]
fn one_gateway_keeps_the_promise_whatever_befalls_it_and_its_workers() {
    let story = fight(ONE_MACHINE, seed(), seconds(30));
    assert_kept(&story);
}

#[cfg(not(feature = "broken-drain"))]
#[test]
fn three_gateways_keep_the_promise_whatever_befalls_them_and_all_that_they_rest_on() {
    let story = fight(CLUSTER, seed(), seconds(75));
    assert_kept(&story);
}

/// The check finds out a gateway that forwards a newer token's write without waiting for older ones.
#[cfg(feature = "broken-drain")]
#[test]
fn one_gateway_that_does_not_drain_is_found_out() {
    assert_found_out(ONE_MACHINE);
}

#[cfg(feature = "broken-drain")]
#[test]
fn three_gateways_that_do_not_drain_are_found_out() {
    assert_found_out(CLUSTER);
}

#[cfg(not(feature = "broken-drain"))]
fn assert_kept(story: &Story) {
    tell(story);
    assert!(story.violations.is_empty() && story.faults.is_empty(), "see above");
    // Else it proves nothing.
    assert!(story.record.handovers() >= 15, "too little happened");
    assert!(count(story, "stale_fencing_token") >= 1, "too little happened");
}

#[cfg(feature = "broken-drain")]
fn assert_found_out(shape: Shape) {
    use check::Violation;
    let story = fight(shape, seed(), seconds(180));
    tell(&story);
    let is_disorder = |violation: &Violation| {
        matches!(violation, Violation::Overlap { .. } | Violation::WentBack { .. })
    };
    assert!(story.violations.iter().any(is_disorder), "in vain");
}

fn tell(story: &Story) {
    let effects = story.record.requests.iter().filter(|request| request.effect.is_some());
    let (effects, handovers) = (effects.count(), story.record.handovers());
    println!("{effects} writes took effect, {handovers} handovers");
    let mut told: BTreeMap<&Told, usize> = BTreeMap::new();
    story.notes.values().for_each(|note| *told.entry(&note.told).or_default() += 1);
    println!("{told:#?}\nstruck: {:#?}\nruns: {:#?}", story.strikes, story.ends);
    for violation in &story.violations {
        println!("VIOLATION: {violation}");
    }
    for fault in &story.faults {
        println!("FAULT: {fault}");
    }
}

/// How many attempts were refused with a code.
#[cfg(not(feature = "broken-drain"))]
fn count(story: &Story, code: &str) -> usize {
    let is_it = |told: &Told| matches!(told, Told::NotForwarded(text) if text.ends_with(code));
    story.notes.values().filter(|note| is_it(&note.told)).count()
}

/// Waits until `level` holds.
#[track_caller]
fn wait_until(what: &str, mut level: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !level() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = number_from_environment("FENCEGATE_CHAOS_SEED").unwrap_or(now.as_secs());
    println!("FENCEGATE_CHAOS_SEED={seed}");
    seed
}

fn seconds(default: u64) -> Duration {
    Duration::from_secs(number_from_environment("FENCEGATE_CHAOS_SECONDS").unwrap_or(default))
}

fn number_from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}
