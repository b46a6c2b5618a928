//! `fencegate run`: a command under a lease.
//!
//! Invariants: the command starts only under a live lease; its whole process group is dead before
//! the lease's deadline when the lease is lost; and it is dead, with the stamping proxy closed,
//! before the lease is released. If this process is suspended itself it cannot keep the second
//! one; it then kills as soon as it wakes, and the gateway refuses what was written late.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use futures_util::FutureExt;
use rustix::process::Signal;

use super::client::LeaseError;
use super::group::Group;
use super::held::{HeldLease, LeaseView, Lost, Terms};
use super::leases::Leases;
use super::report::Report;
use super::signals::Signals;
use super::stamp::{Gateway, StampProxy};
use crate::clock::Clock;
use crate::fence::{Owner, Resource};

/// Exit codes of `fencegate run` itself; every other one is the command's.
pub mod exit {
    /// The lease is held, and `--on-held skip` was given.
    pub const SKIPPED: u8 = 0;
    /// The command line is wrong (`EX_USAGE`).
    pub const USAGE: u8 = 64;
    /// The coordinator does not answer, or refused the request (`EX_UNAVAILABLE`).
    pub const UNAVAILABLE: u8 = 69;
    /// The system refused something that is needed to run or to watch a command (`EX_OSERR`).
    pub const SYSTEM: u8 = 71;
    /// The lease is held by another owner (`EX_TEMPFAIL`).
    pub const HELD: u8 = 75;
    /// The lease was lost, and the command was ended for it.
    pub const LOST: u8 = 76;
    /// The command cannot be executed.
    pub const CANNOT_EXECUTE: u8 = 126;
    /// The command was not found.
    pub const NOT_FOUND: u8 = 127;
    /// Plus the number of the signal that ended the command.
    pub const SIGNALLED: u8 = 128;
}

/// What to run, and under which lease.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where leases come from.
    pub leases: Leases,
    /// What the lease is for.
    pub resource: Resource,
    /// Who acquires it; unique per run.
    pub owner: Owner,
    /// The lease's time to live.
    pub ttl: Duration,
    /// What to do when another owner has it.
    pub on_held: OnHeld,
    /// Between `SIGTERM` and `SIGKILL` when the lease is lost; at most a third of the TTL.
    pub kill_after: Duration,
    /// Where the stamping proxy sends requests that name no host.
    pub gateway: Option<Gateway>,
    /// The command and its arguments; at least one.
    pub command: Vec<OsString>,
}

/// What to do when another owner has the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHeld {
    /// Do nothing, successfully.
    Skip,
    /// Wait this long for it.
    Wait(Duration),
    /// Fail with [`exit::HELD`].
    Fail,
}

/// Why the command was not run.
#[derive(Debug, thiserror::Error)]
enum NotRun {
    #[error("{0}; skipped")]
    Skipped(LeaseError),
    #[error("{0}")]
    Lease(LeaseError),
    #[error("ended by signal {} before it had the lease", .0.as_raw())]
    Signalled(Signal),
    #[error("cannot run {program:?}: {error}")]
    Exec { program: OsString, error: io::Error },
    #[error("cannot watch over a command: {0}")]
    System(io::Error),
}

/// Runs the job to its end; the exit code.
pub async fn run(job: Job, clock: Clock) -> u8 {
    let report = Report::start(format!("fencegate run: {}", job.resource));
    let code = match acquire(&job, clock, &report).await {
        Ok((held, signals)) => under_lease(&job, clock, held, signals, &report).await,
        Err(not_run) => Err(not_run),
    };
    let code = code.unwrap_or_else(|not_run| {
        report.say(&not_run);
        not_run.exit_code()
    });
    report.finish();
    code
}

async fn acquire(job: &Job, clock: Clock, report: &Report) -> Result<(HeldLease, Signals), NotRun> {
    let mut signals = Signals::listen().map_err(NotRun::System)?;
    let wait = match job.on_held {
        OnHeld::Wait(wait) => wait,
        OnHeld::Skip | OnHeld::Fail => Duration::ZERO,
    };
    let Job { leases, resource, owner, ttl, .. } = job;
    let margin = kill_margin(*ttl) + job.kill_after;
    let terms = Terms { resource: resource.clone(), owner: owner.clone(), ttl: *ttl, wait, margin };
    let acquiring = HeldLease::acquire(leases, clock, &terms);
    let telling = tell_of_the_wait(job, report).fuse();
    tokio::pin!(acquiring, telling);
    loop {
        tokio::select! {
            // In this order, so that who is first in the queue is not made later by the telling.
            biased;
            held = &mut acquiring => return match held {
                Ok(held) => Ok((held, signals)),
                Err(held @ LeaseError::Held { .. }) if job.on_held == OnHeld::Skip => {
                    Err(NotRun::Skipped(held))
                }
                Err(error) => Err(NotRun::Lease(error)),
            },
            signal = signals.next() => match signal {
                Signal::TSTP => stop_this_process(),
                signal => return Err(NotRun::Signalled(signal)),
            },
            () = &mut telling => {}
        }
    }
}

/// Says once for whom it waits, as far as that can be seen; a run that hangs in silence looks
/// broken.
async fn tell_of_the_wait(job: &Job, report: &Report) {
    let OnHeld::Wait(wait) = job.on_held else { return };
    let holder = match job.leases.show(&job.resource).await {
        Ok(holder) => holder,
        // Whoever may have sent it tries again, which is silent and may be for long.
        Err(error @ LeaseError::Unreachable { sent: true, .. }) => {
            return report
                .say(format_args!("{error}; trying for at most {} s", wait.as_secs_f32()));
        }
        Err(_) => return,
    };
    if holder.owner != job.owner {
        report.say(format_args!(
            "the lease is held by {:?} with token {} until {}; waiting for at most {} s",
            holder.owner.as_str(),
            holder.token,
            holder.expires_at,
            wait.as_secs_f32()
        ));
    }
}

async fn under_lease(
    job: &Job,
    clock: Clock,
    held: HeldLease,
    mut signals: Signals,
    report: &Report,
) -> Result<u8, NotRun> {
    let token = held.token();
    let (proxy, group) = match start(job, held.view()).await {
        Ok(started) => started,
        Err(not_run) => {
            release(held, false, report).await;
            return Err(not_run);
        }
    };
    let lost = supervise(&group, job, held.view(), clock, &mut signals, report).await;
    let ended = group.end(clock).await.unwrap_or_else(|error| {
        report.say(format_args!("token {token}: cannot wait for the command: {error}"));
        None
    });
    proxy.close().await;
    match (&ended, &lost) {
        (None, _) => {
            held.abandon();
            report.say(format_args!(
                "token {token}: a process of the command does not die of SIGKILL; \
                 the lease is not released and expires by itself"
            ));
        }
        (Some(_), Some(Lost::Told { .. })) => held.abandon(),
        (Some(_), lost) => release(held, lost.is_some(), report).await,
    }
    Ok(match (lost, ended) {
        (Some(_), _) => exit::LOST,
        (None, Some(status)) => code_of(status),
        (None, None) => exit::SYSTEM,
    })
}

async fn start(job: &Job, view: &LeaseView) -> Result<(StampProxy, Group), NotRun> {
    let proxy =
        StampProxy::bind(view.clone(), job.gateway.clone()).await.map_err(NotRun::System)?;
    let (program, arguments) = job.command.split_first().expect("a job has a command");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("FENCING_TOKEN", view.token().to_string())
        .env("FENCING_RESOURCE", job.resource.as_str())
        .env("FENCING_PROXY", proxy.url());
    let group = Group::spawn(&mut command)
        .map_err(|error| NotRun::Exec { program: program.clone(), error })?;
    Ok((proxy, group))
}

/// Watches until the command has exited, or has to be killed because the lease is lost.
async fn supervise(
    group: &Group,
    job: &Job,
    view: &LeaseView,
    clock: Clock,
    signals: &mut Signals,
    report: &Report,
) -> Option<Lost> {
    let lost = loop {
        tokio::select! {
            biased;
            () = group.exited() => return None,
            lost = view.lost() => break lost,
            signal = signals.next() => match signal {
                Signal::TSTP => {
                    group.signal(Signal::STOP);
                    stop_this_process();
                    if view.is_live() {
                        group.signal(Signal::CONT);
                    }
                }
                signal => group.signal(signal),
            },
        }
    };
    let token = view.token();
    let now = clock.now();
    let left = view.deadline().since(now);
    let grace = job.kill_after.min(left.saturating_sub(kill_margin(view.lease().ttl())));
    if grace.is_zero() {
        // The caller kills; nothing may come before that.
        group.signal(Signal::KILL);
        report.say(format_args!("token {token}: lease lost: {lost}; command killed"));
        return Some(lost);
    }
    group.signal(Signal::TERM);
    report.say(format_args!(
        "token {token}: lease lost: {lost}; SIGTERM sent, SIGKILL follows in {} ms",
        grace.as_millis()
    ));
    tokio::select! {
        () = group.exited() => {}
        () = clock.sleep_until(now + grace) => {}
    }
    Some(lost)
}

/// Between the `SIGKILL` and the deadline.
fn kill_margin(ttl: Duration) -> Duration {
    (ttl / 10).max(Duration::from_millis(50))
}

fn stop_this_process() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

async fn release(held: HeldLease, is_lost: bool, report: &Report) {
    let token = held.token();
    match held.release().await {
        // Nobody expected to find it.
        Err(LeaseError::NotFound { .. } | LeaseError::OwnerMismatch { .. }) if is_lost => {}
        Err(error) => {
            report.say(format_args!("token {token}: not released, expires by itself: {error}"));
        }
        Ok(()) => {}
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).ok(),
        (None, Some(signal)) => {
            u8::try_from(signal).ok().map(|n| exit::SIGNALLED.saturating_add(n))
        }
        (None, None) => None,
    };
    code.unwrap_or(exit::SYSTEM)
}

impl NotRun {
    fn exit_code(&self) -> u8 {
        match self {
            NotRun::Skipped(_) => exit::SKIPPED,
            NotRun::Lease(LeaseError::Held { .. }) => exit::HELD,
            NotRun::Lease(LeaseError::Lost { .. }) => exit::LOST,
            NotRun::Lease(_) => exit::UNAVAILABLE,
            NotRun::Signalled(signal) => {
                exit::SIGNALLED.saturating_add(u8::try_from(signal.as_raw()).unwrap_or(0))
            }
            NotRun::Exec { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                exit::NOT_FOUND
            }
            NotRun::Exec { .. } => exit::CANNOT_EXECUTE,
            NotRun::System(_) => exit::SYSTEM,
        }
    }
}
