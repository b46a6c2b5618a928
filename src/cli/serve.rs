//! `fencegate serve`

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tracing_appender::non_blocking::ErrorCounter;

use crate::config::{self, Loaded, ServeFlags, Sources};
use crate::serve::Requests;
use crate::worker::exit;
use crate::{serve, telemetry};

#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    flags: Box<ServeFlags>,
}

pub(super) fn main(args: &ServeArgs) -> ExitCode {
    let sources = args.flags.sources(std::env::vars_os());
    let loaded = match config::load(&sources) {
        Ok(loaded) => loaded,
        Err(mistakes) => {
            eprintln!("{mistakes}");
            return exit::USAGE.into();
        }
    };
    let log = telemetry::start(loaded.log.clone());
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    match run(loaded, sources, log.dropped.clone()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fencegate serve: {error:#}");
            exit::UNAVAILABLE.into()
        }
    }
}

fn run(loaded: Loaded, sources: Sources, log: ErrorCounter) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let asked = Requests::default();
        tokio::spawn(on_signal(asked.clone())?);
        Ok(serve::serve(loaded, sources, asked, log).await?)
    });
    // Whatever still blocks must not keep the process: the grants are given back by now.
    runtime.shutdown_background();
    served
}

/// Begins the shutdown at SIGTERM or SIGINT, and a reload at each SIGHUP.
fn on_signal(asked: Requests) -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                // One that comes during a reload is kept for another one.
                _ = hangup.recv() => asked.reload.notify_one(),
            }
        }
        asked.shutdown.cancel();
    })
}
