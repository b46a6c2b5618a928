//! Strikes by the plan, and ends what each strike began.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::arena::Arena;
use super::check::disorder;
use super::plan::{Blow, Strike, Victim};
use super::record::Record;
use super::workers::Workers;

const STEP: Duration = Duration::from_millis(10);
/// Between two looks at the record; longer where it is so long that a look takes its time.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Why the nemesis ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rage {
    /// The plan is over, and all is healed.
    Spent,
    /// The promise was seen broken.
    Satisfied,
}

/// See the module.
pub struct Nemesis<'a> {
    plan: &'a [Strike],
    /// When they are healed, and the job of the worker that was struck.
    pending: Vec<(Duration, Strike, Option<String>)>,
    /// How many of each kind found somebody.
    pub strikes: BTreeMap<String, usize>,
}

impl<'a> Nemesis<'a> {
    pub fn new(plan: &'a [Strike]) -> Nemesis<'a> {
        Nemesis { plan, pending: Vec::new(), strikes: BTreeMap::new() }
    }

    /// Strikes for `length`, and tends the arena meanwhile.
    pub fn rage(&mut self, arena: &mut Arena, workers: &Workers, length: Duration) -> Rage {
        let began = Instant::now();
        let mut look_at = LOOK_EVERY;
        loop {
            let now = began.elapsed();
            self.heal(now, arena, workers);
            while let Some((strike, rest)) = self.plan.split_first().filter(|(s, _)| s.at <= now) {
                self.plan = rest;
                self.strike(strike, arena, workers);
            }
            arena.tend();
            if self.plan.is_empty() && self.pending.is_empty() && now >= length {
                return Rage::Spent;
            }
            if now >= look_at {
                if !disorder(&Record::read(arena.dir())).is_empty() {
                    return Rage::Satisfied;
                }
                let took = began.elapsed().saturating_sub(now);
                look_at = now + LOOK_EVERY.max(took * 20);
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
