//! `fencegate migrate`: brings the store's schema up to date, without starting anything else.

use std::process::ExitCode;

use prometheus::Registry;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::config::{self, ServeFlags, Store};
use crate::metrics::StoreMetrics;
use crate::store::{self, Database, MigrateOutcome};
use crate::worker::exit;

#[derive(Debug, clap::Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    flags: Box<ServeFlags>,
}

pub(super) fn main(args: &MigrateArgs) -> ExitCode {
    let loaded = match config::load(&args.flags.sources(std::env::vars_os())) {
        Ok(loaded) => loaded,
        Err(mistakes) => {
            eprintln!("{mistakes}");
            return exit::USAGE.into();
        }
    };
    match run(&loaded.config.store) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("fencegate migrate: {error:#}");
            exit::UNAVAILABLE.into()
        }
    }
}

fn run(store: &Store) -> anyhow::Result<&'static str> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match store {
            Store::Postgres(settings) => Ok(match store::migrate(settings).await? {
                MigrateOutcome::WasCurrent => "the schema was up to date",
                MigrateOutcome::Migrated => "the schema is up to date now",
            }),
            Store::Sqlite(path) => {
                let tasks = TaskTracker::new();
                let metrics = StoreMetrics::register(&Registry::new())?;
                drop(Database::open(path, Clock::new(), &tasks, metrics).await?);
                tasks.close();
                tasks.wait().await;
                Ok("the schema is up to date")
            }
        }
    })
}
