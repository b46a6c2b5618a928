//! `fencegate demo`

use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {}

pub(super) fn main(_args: &DemoArgs) -> ExitCode {
    ExitCode::FAILURE
}
