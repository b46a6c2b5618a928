//! Real input: workers that call plain curl fight over a few files of an nginx, are suspended and
//! killed, and their connections are delayed. Then nginx's log and its files are held against the
//! promise.
//!
//! `FENCEGATE_FIGHT_SECONDS` (default 60) sets for how long, `FENCEGATE_FIGHT_SEED` repeats the
//! decisions of an earlier run; see `docs/testing.md`.

mod chance;
mod check;
mod doctored;
mod nemesis;
mod network;
mod workers;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::gateway::Gateway;
use crate::support::nginx::Nginx;
use chance::Chance;
use check::{Note, Traces, Violation};
use nemesis::Strikes;
use network::Network;
use workers::{FILES, Ground, TTL};

const WORKERS: usize = 8;

/// How the end of a process that panicked is displayed.
const PANICKED: &str = "exit status: 101";

/// With fewer of them a fight proves nothing.
const HANDOVERS: usize = 20;
const STALE: usize = 10;

/// What a fight was like.
#[derive(Debug)]
struct Story {
    strikes: Strikes,
    held_in_network: usize,
    /// How `fencegate run` ended, and how often so.
    ends: BTreeMap<String, usize>,
}

#[test]
fn workers_that_fight_over_files_of_nginx_never_break_the_promise() {
    let seconds = number_from_environment("FENCEGATE_FIGHT_SECONDS").unwrap_or(60);
    let mut nginx = Nginx::start();
    let mut gateway = Gateway::guard(nginx.address);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut chance = seeded();

    let enough = Instant::now() + Duration::from_secs(seconds);
    // On a machine that is busy it takes longer until enough has happened to prove anything.
    let give_up = enough + Duration::from_secs(120);
    let story = fight(&gateway, gateway.proxy, dir.path(), &mut chance, || {
        let now = Instant::now();
        now >= enough
            && (now >= give_up
                || traces(&nginx, dir.path()).handovers() >= HANDOVERS
                    && stale(dir.path()) >= STALE)
    });
    let doubts = gateway.admin("/v1/in-doubt").json();
    assert!(gateway.stop().success());
    nginx.finish();

    let traces = traces(&nginx, dir.path());
    let (writes, handovers) = (traces.effects().count(), traces.handovers());
    let stale = stale(dir.path());
    println!("{writes} writes, {handovers} handovers, {stale} stale ones refused");
    println!("{:?}, {story:?}", traces.answers());
    println!("in doubt at the end: {}", doubts["in_doubt"].as_array().map_or(0, Vec::len));
    assert_eq!(traces.violations(), []);
    assert!(!story.ends.contains_key(PANICKED), "a run panicked");
    // What is not in the log is not on the disk, either.
    assert!(nginx.stored().iter().all(|(file, _)| FILES.contains(&file.as_str())));
    // Else it proves nothing.
    let Story { strikes, held_in_network, .. } = story;
    assert!(strikes.suspended > 0 && strikes.killed > 0 && held_in_network > 0);
    assert!(handovers >= HANDOVERS, "{handovers} handovers");
    assert!(stale >= STALE, "{stale} stale writes were refused");
    assert!(traces.answers().contains_key(&Some(412)));
}

#[test]
fn without_the_gateway_the_same_workers_break_the_promise_and_are_found_out() {
    let mut nginx = Nginx::start();
    let api = nginx.address;
    // Here it only issues leases.
    let gateway = Gateway::guard(api);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let give_up = Instant::now() + Duration::from_secs(120);
    let went_back = |traces: &Traces| {
        let found = traces.violations();
        found.iter().any(|violation| matches!(violation, Violation::WentBack { .. }))
    };

    fight(&gateway, api, dir.path(), &mut seeded(), || {
        went_back(&traces(&nginx, dir.path())) || Instant::now() >= give_up
    });
    nginx.finish();

    let traces = traces(&nginx, dir.path());
    assert!(went_back(&traces), "in vain: {} writes", traces.effects().count());
}

/// Lets workers fight over files at `api` until it is enough.
fn fight(
    gateway: &Gateway,
    api: SocketAddr,
    dir: &Path,
    chance: &mut Chance,
    mut is_enough: impl FnMut() -> bool,
) -> Story {
    let network = Network::start(api, TTL, chance.split());
    let ground = Ground::new(dir, gateway.leases, network.address, api);
    thread::scope(|scope| {
        let nemesis = {
            let (ground, chance) = (&ground, chance.split());
            scope.spawn(move || nemesis::strike(ground, chance))
        };
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let (ground, chance) = (&ground, chance.split());
                scope.spawn(move || ground.work(number, chance))
            })
            .collect();
        while !is_enough() {
            thread::sleep(Duration::from_millis(500));
        }
        ground.end();
        let mut ends = BTreeMap::new();
        for worker in workers {
            for (end, times) in worker.join().expect("no panic") {
                *ends.entry(end).or_default() += times;
            }
        }
        // A run that was just being started may have left something.
        ground.end();
        let strikes = nemesis.join().expect("no panic");
        Story { strikes, held_in_network: network.held(), ends }
    })
}

fn traces(nginx: &Nginx, dir: &Path) -> Traces {
    let notes = fs::read_to_string(dir.join("notes")).expect("made at the start");
    let mut by_name: HashMap<String, Note> = HashMap::new();
    let whole = notes.rfind('\n').map_or("", |end| &notes[..end]);
    for line in whole.lines() {
        let (name, what) = line.split_once(' ').unwrap_or_else(|| panic!("half a note: {line}"));
        let status = match what {
            // Nothing is noted of a curl that was killed before the shell that waits for it.
            "sent" | "" => None,
            status => Some(status.parse().expect("curl prints a number")),
        };
        let note = by_name.entry(name.to_owned()).or_default();
        note.status = status.or(note.status);
    }
    Traces { log: nginx.timed(), files: nginx.stored().into_iter().collect(), notes: by_name }
}

/// How often a worker was told that its token is stale.
fn stale(dir: &Path) -> usize {
    let refusals = fs::read_to_string(dir.join("refusals")).expect("made at the start");
    refusals.matches("\"stale_fencing_token\"").count()
}

fn seeded() -> Chance {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = number_from_environment("FENCEGATE_FIGHT_SEED").unwrap_or(now.as_secs());
    println!("FENCEGATE_FIGHT_SEED={seed}");
    Chance::new(seed)
}

fn number_from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}
