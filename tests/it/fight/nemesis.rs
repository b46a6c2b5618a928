//! What befalls workers: they are suspended past their lease, and they are killed.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::chance::Chance;
use super::workers::{Ground, TTL, Whom};

/// How often it struck a job that ran.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strikes {
    pub suspended: usize,
    pub killed: usize,
}

/// Strikes until the fight is over.
pub(super) fn strike(ground: &Ground, mut chance: Chance) -> Strikes {
    let mut strikes = Strikes::default();
    let mut suspended: Vec<(Instant, String, Whom)> = Vec::new();
    while !ground.is_over() {
        thread::sleep(Duration::from_millis(300).mul_f64(0.5 + chance.fraction()));
        suspended.retain(|(until, job, whom)| {
            let is_due = *until <= Instant::now();
            if is_due {
                wake(ground, job, *whom);
            }
            !is_due
        });
        let jobs = ground.jobs();
        if jobs.is_empty() || suspended.len() >= 3 {
            continue;
        }
        let job = jobs[chance.below(jobs.len())].clone();
        if chance.one_in(4) {
            let whom = if chance.one_in(2) { Whom::Run } else { Whom::Both };
            strikes.killed += usize::from(ground.signal(&job, whom, Signal::KILL));
            continue;
        }
        let whom = match chance.below(4) {
            0 => Whom::Run,
            1 => Whom::Command,
            _ => Whom::Both,
        };
        if ground.signal(&job, whom, Signal::STOP) {
            strikes.suspended += 1;
            let until = Instant::now() + TTL.mul_f64(1.1 + 1.5 * chance.fraction());
            suspended.push((until, job, whom));
        }
    }
    for (_, job, whom) in suspended {
        wake(ground, &job, whom);
    }
    strikes
}

/// The command first: it may write for a moment before its run wakes and kills it.
fn wake(ground: &Ground, job: &str, whom: Whom) {
    if whom != Whom::Run {
        ground.signal_orphans(job, Signal::CONT);
    }
    if whom != Whom::Command {
        ground.signal(job, Whom::Run, Signal::CONT);
    }
}
