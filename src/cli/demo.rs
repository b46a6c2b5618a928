//! `fencegate demo`: a lost update that a lease does not prevent, and the same run with Fencegate.
//!
//! Everything is real: two workers and a gateway, each a process of its own (this binary again,
//! with a hidden subcommand), and a worker that the system suspends in the middle of its work. The
//! reading order is [`run`], which is the story; [`worker`], what one worker does; [`api`], what is
//! written to; [`ending`], what is claimed in the end and what it rests on.
//!
//! Whatever happens, no process is left: a [`Process`](process::Process) ends with its owner, and
//! with the demo itself. The gateway's store is removed too, unless the demo is killed.

mod api;
mod ending;
mod gateway;
mod page;
mod process;
mod run;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::page::Page;
use self::run::Way;
use super::serve::{self, ServeArgs};
use crate::clock::Clock;

/// For any one thing that the demo waits for; reached only when something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
#[command(disable_help_subcommand = true)]
pub(super) struct DemoArgs {
    #[command(subcommand)]
    part: Option<Part>,
}

/// The processes that the demo starts. Each is told the demo's own process id, to end with it.
#[derive(Debug, clap::Subcommand)]
enum Part {
    #[command(hide = true)]
    Worker {
        demo: i32,
        #[command(flatten)]
        args: worker::WorkerArgs,
    },
    #[command(hide = true)]
    Gateway {
        demo: i32,
        #[command(flatten)]
        args: ServeArgs,
    },
}

pub(super) fn main(args: &DemoArgs) -> ExitCode {
    let played = match &args.part {
        None => block_on(demo()),
        Some(Part::Worker { demo, args }) => {
            process::end_with(*demo).and_then(|()| block_on(worker::work(args)))
        }
        Some(Part::Gateway { demo, args }) => match process::end_with(*demo) {
            Ok(()) => return serve::main(args),
            Err(error) => Err(error),
        },
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fencegate demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn block_on(played: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(played)
}

async fn demo() -> anyhow::Result<()> {
    let [mut interrupt, mut terminate, mut hang_up] = signals()?;
    // Whichever comes first, the other ones are dropped, and with the story all its processes.
    tokio::select! {
        told = tell() => told,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
        _ = hang_up.recv() => bail!("the terminal was closed"),
    }
}

fn signals() -> std::io::Result<[Signal; 3]> {
    Ok([
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    ])
}

async fn tell() -> anyhow::Result<()> {
    let mut page = Page::new(Clock::new());
    page.gap()?;
    page.heading("Fencegate demo: a worker that wakes up too late")?;
    page.text(
        "An account holds 100. Worker A is to add 50 to it, worker B is to add 30. The API that \
         keeps the account stores what it is sent, and knows nothing of what follows.",
    )?;
    page.text(
        "Before a worker begins, it takes a lease: the right to be the only one at work, for a \
         limited time. The lease comes with a number, the fencing token; every later lease has a \
         higher one. In both runs `fencegate serve` gives the leases out.",
    )?;

    page.heading("Run 1: with leases, but the workers write straight to the API")?;
    let without = run::run(Way::Straight, &mut page).await.context("run 1")?;
    page.text(
        "A lease alone did not help. It tells a worker that it may begin; it cannot stop one that \
         was paused, lost its lease and goes on where it was.",
    )?;

    page.heading("Run 2: the same, with Fencegate in front of the API")?;
    let with = run::run(Way::ThroughFencegate, &mut page).await.context("run 2")?;
    page.text(
        "Each write carries the token of its worker's lease. Fencegate recorded B's token before \
         it passed B's write on. A's token is lower, so A's write went no further.",
    )?;

    ending::tell(&without, &with, &mut page)
}
