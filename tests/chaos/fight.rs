//! One fight: workers write, the nemesis strikes by its plan, then all is left in peace until it works again.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::arena::Arena;
use super::chance::Chance;
use super::check::{Violation, violations};
use super::notes::{self, Notebook, Notes, Told};
use super::plan::{Blow, Shape, Strike, Victim, draw};
use super::record::Record;
use super::workers::Workers;

/// After the last strike every resource is written to again within this time.
const RECOVERY: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(10);

/// What a fight was like.
pub struct Story {
    pub violations: Vec<Violation>,
    /// What went wrong besides: a gateway that ended by itself, a resource that nobody can write to any more.
    pub faults: Vec<String>,
    pub record: Record,
    pub notes: Notes,
    /// How many strikes of each kind found somebody.
    pub strikes: BTreeMap<String, usize>,
    /// How the workers' runs ended.
    pub ends: BTreeMap<String, usize>,
}

/// Fights by the plan of `seed` for `length`, or until `is_enough`, which is asked now and then.
pub fn fight(
    shape: Shape,
    seed: u64,
    length: Duration,
    is_enough: impl Fn(&Record, &Notes) -> bool,
) -> Story {
    // Two at a time would be too much for a small machine.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = draw(seed, length, shape);
    let mut chance = Chance::new(seed);
    let mut arena = Arena::start(shape, seed);
    Notebook::create(arena.dir());
    let addresses = |link: fn(&super::gateway::Gateway) -> std::net::SocketAddr| {
        arena.gateways().iter().map(link).collect::<Vec<_>>()
    };
    let workers = Workers::new(
        arena.dir().to_owned(),
        shape.resources,
        addresses(|gateway| gateway.proxy.address),
        addresses(|gateway| gateway.leases.address),
    );
    let mut strikes = BTreeMap::new();
    let mut ends = BTreeMap::new();
    let mut faults = Vec::new();
    thread::scope(|scope| {
        // Ends them also when this panics; the scope waits for their threads.
        let end = End(&workers);
        let threads: Vec<_> = (0..shape.workers)
            .map(|worker| {
                let (workers, chance) = (&workers, chance.split());
                scope.spawn(move || workers.work(worker, chance))
            })
            .collect();
        let mut nemesis = Nemesis { plan: &plan, pending: Vec::new(), strikes: BTreeMap::new() };
        let is_cut_short = nemesis.rage(&mut arena, &workers, length, &is_enough);
        if !is_cut_short {
            faults.extend(recover(&mut arena, shape));
        }
        strikes = nemesis.strikes;
        drop(end);
        for thread in threads {
            for (how, times) in thread.join().expect("no panic") {
                *ends.entry(how).or_default() += times;
            }
        }
    });
    // What is under way at the API comes to its end.
    thread::sleep(super::api::SLOWEST);
    let (record, notes) = (Record::read(arena.dir()), notes::read(arena.dir()));
    faults.extend(arena.faults());
    faults.extend(false_alarms(&notes));
    let violations = violations(&record, &notes);
    if !violations.is_empty() || !faults.is_empty() {
        drop(workers);
        println!("what it left behind is in {}", arena.keep().display());
    }
    Story { violations, faults, record, notes, strikes, ends }
}

struct End<'a>(&'a Workers);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Nemesis<'a> {
    plan: &'a [Strike],
    /// When they are healed, and the job of the worker that was struck.
    pending: Vec<(Duration, Strike, Option<String>)>,
    strikes: BTreeMap<String, usize>,
}

impl Nemesis<'_> {
    /// Strikes until the plan is over and all is healed. `true`: until it was enough.
    fn rage(
        &mut self,
        arena: &mut Arena,
        workers: &Workers,
        length: Duration,
        is_enough: impl Fn(&Record, &Notes) -> bool,
    ) -> bool {
        let began = Instant::now();
        let mut next_look = Duration::ZERO;
        loop {
            let now = began.elapsed();
            self.heal(now, arena, workers);
            while let Some((strike, rest)) = self.plan.split_first().filter(|(s, _)| s.at <= now) {
                self.plan = rest;
                self.strike(strike, arena, workers);
            }
            arena.tend();
            if self.plan.is_empty() && self.pending.is_empty() && now >= length {
                return false;
            }
            if now >= next_look {
                next_look = now + Duration::from_secs(1);
                if is_enough(&Record::read(arena.dir()), &notes::read(arena.dir())) {
                    return true;
                }
            }
            thread::sleep(STEP);
        }
    }

    fn strike(&mut self, strike: &Strike, arena: &mut Arena, workers: &Workers) {
        let (has_hit, job) = match strike.victim {
            Victim::Worker(worker, whom) => {
                let signal = if strike.blow == Blow::Kill { Signal::KILL } else { Signal::STOP };
                let job = workers.strike(worker, whom, signal);
                (job.is_some(), job)
            }
            _ => (arena.strike(strike), None),
        };
        let whom = job.clone().unwrap_or_default();
        println!("{strike} {}", if has_hit { &whom } else { "hit nobody" });
        if has_hit {
            let kind = format!("{:?} {}", strike.blow, name(&strike.victim));
            *self.strikes.entry(kind).or_default() += 1;
            self.pending.push((strike.at + strike.lasts, *strike, job));
        }
    }

    fn heal(&mut self, now: Duration, arena: &mut Arena, workers: &Workers) {
        for (_, strike, job) in self.pending.extract_if(.., |(until, ..)| *until <= now) {
            match (strike.victim, job) {
                (Victim::Worker(..), Some(job)) => workers.wake(&job),
                _ => arena.heal(&strike),
            }
        }
    }
}

/// The kind of a victim, without its number.
fn name(victim: &impl Debug) -> String {
    let text = format!("{victim:?}");
    text.chars().filter(|letter| letter.is_ascii_alphabetic()).collect()
}

/// Waits until every resource has been written to since now; what is wrong otherwise.
fn recover(arena: &mut Arena, shape: Shape) -> Option<String> {
    let before = notes::read(arena.dir()).values().map(|note| note.line).max();
    let calm = Instant::now();
    loop {
        arena.tend();
        let notes = notes::read(arena.dir());
        let since =
            notes.values().filter(|note| note.told == Told::Done && Some(note.line) > before);
        let written: std::collections::BTreeSet<_> = since.map(|note| &note.resource).collect();
        if written.len() == shape.resources {
            println!("recovered after {:.1} s", calm.elapsed().as_secs_f64());
            return None;
        }
        if calm.elapsed() > RECOVERY {
            return Some(format!("only {written:?} can be written to"));
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Nobody wiped or restored the coordinator.
fn false_alarms(notes: &Notes) -> impl Iterator<Item = String> {
    let is_alarm = |told: &Told| matches!(told, Told::NotForwarded(code) if code.ends_with("coordinator_changed"));
    let alarms = notes.iter().filter(move |(_, note)| is_alarm(&note.told));
    alarms.map(|(attempt, _)| format!("refused for a coordinator that did not change: {attempt}"))
}
