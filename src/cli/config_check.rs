//! `fencegate config check`: shows what a configuration amounts to, without starting anything.
//!
//! The configuration goes to standard output, warnings and mistakes to standard error. Exit code 0
//! if `serve` would take it, 64 if not.

use std::io::Write;
use std::process::ExitCode;

use crate::config::{self, ServeFlags};
use crate::worker::exit;

#[derive(Debug, clap::Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the effective configuration, with the origin of each value that was set
    Check(Box<ServeFlags>),
}

pub(super) fn main(command: &ConfigCommand) -> ExitCode {
    let ConfigCommand::Check(flags) = command;
    let mut errors = std::io::stderr().lock();
    match config::load(&flags.sources(std::env::vars_os())) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                // Nobody is left to tell if standard error is closed.
                let _ = writeln!(errors, "warning: {warning}");
            }
            match std::io::stdout().lock().write_all(loaded.to_toml().as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(mistakes) => {
            let _ = writeln!(errors, "{mistakes}");
            exit::USAGE.into()
        }
    }
}
