//! `fencegate lease`

use std::process::ExitCode;

#[derive(Debug, clap::Subcommand)]
pub(super) enum LeaseCommand {
    Show,
}

pub(super) fn main(_args: &LeaseCommand) -> ExitCode {
    ExitCode::FAILURE
}
