//! `fencegate fence`

use std::process::ExitCode;

#[derive(Debug, clap::Subcommand)]
pub(super) enum FenceCommand {
    Show,
}

pub(super) fn main(_args: &FenceCommand) -> ExitCode {
    ExitCode::FAILURE
}
