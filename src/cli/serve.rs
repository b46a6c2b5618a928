//! `fencegate serve`

use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {}

pub(super) fn main(_args: &ServeArgs) -> ExitCode {
    ExitCode::FAILURE
}
