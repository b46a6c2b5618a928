//! `fencegate config check`

use std::process::ExitCode;

#[derive(Debug, clap::Subcommand)]
pub(super) enum ConfigCommand {
    Check,
}

pub(super) fn main(_args: &ConfigCommand) -> ExitCode {
    ExitCode::FAILURE
}
