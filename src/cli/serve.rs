//! `fencegate serve`

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_appender::non_blocking::ErrorCounter;

use crate::config::{self, Config, Loaded, ServeFlags};
use crate::worker::exit;
use crate::{serve, telemetry};

#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    flags: Box<ServeFlags>,
}

pub(super) fn main(args: &ServeArgs) -> ExitCode {
    let Loaded { config, warnings, log, .. } =
        match config::load(&args.flags.sources(std::env::vars_os())) {
            Ok(loaded) => loaded,
            Err(mistakes) => {
                eprintln!("{mistakes}");
                return exit::USAGE.into();
            }
        };
    let log = telemetry::start(log);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    match run(config, log.dropped.clone()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fencegate serve: {error:#}");
            exit::UNAVAILABLE.into()
        }
    }
}

fn run(config: Config, log: ErrorCounter) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        tokio::spawn(on_signal(shutdown.clone())?);
        Ok(serve::serve(config, shutdown, log).await?)
    });
    // Whatever still blocks must not keep the process: the grants are given back by now.
    runtime.shutdown_background();
    served
}

/// Begins the shutdown at SIGTERM or SIGINT.
fn on_signal(shutdown: CancellationToken) -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        shutdown.cancel();
    })
}
