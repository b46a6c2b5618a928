//! One fight: workers write, the nemesis strikes by its plan, then all is left in peace until it works again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::arena::Arena;
use super::chance::Chance;
use super::check::{Violation, violations};
use super::nemesis::{Nemesis, Rage};
use super::notes::{self, Notebook, Notes, Told};
use super::plan::{Shape, draw};
use super::record::Record;
use super::workers::Workers;

/// After the last strike every resource is written to again within this time.
const RECOVERY: Duration = Duration::from_secs(60);

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

/// Fights by the plan of `seed` for `length`, or until writes are seen out of order.
pub fn fight(shape: Shape, seed: u64, length: Duration) -> Story {
    // Two at a time would be too much for a small machine.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = draw(seed, length, shape);
    let mut chance = Chance::new(seed);
    let mut arena = Arena::start(shape, seed);
    Notebook::create(arena.dir());
    let workers = Workers::new(arena.dir(), shape.resources, arena.gateways());
    let (mut ends, mut faults) = (BTreeMap::new(), Vec::new());
    let mut nemesis = Nemesis::new(&plan);
    thread::scope(|scope| {
        // Ends them also when this panics; the scope waits for their threads.
        let end = End(&workers);
        let threads: Vec<_> = (0..shape.workers)
            .map(|worker| {
                let (workers, chance) = (&workers, chance.split());
                scope.spawn(move || workers.work(worker, chance))
            })
            .collect();
        if nemesis.rage(&mut arena, &workers, length) == Rage::Spent {
            faults.extend(recover(&mut arena, shape));
        }
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
    let is_wanted = std::env::var_os("FENCEGATE_CHAOS_KEEP").is_some();
    if is_wanted || !violations.is_empty() || !faults.is_empty() {
        drop(workers);
        println!("what it left behind is in {}", arena.keep().display());
    }
    let strikes = nemesis.strikes;
    Story { violations, faults, record, notes, strikes, ends }
}

struct End<'a>(&'a Workers);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
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
