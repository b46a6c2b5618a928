//! `fencegate run`

use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {}

pub(super) fn main(_args: &RunArgs) -> ExitCode {
    ExitCode::FAILURE
}
