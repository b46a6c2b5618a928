//! `fencegate coordinator`: the coordinator's history as a running gateway sees it.

use std::process::ExitCode;

use http::Method;
use serde_json::Value;

use super::admin::{self, AdminAddress, Failure};

#[derive(Debug, clap::Subcommand)]
pub(super) enum CoordinatorCommand {
    /// Print as JSON which history is known, and whether the coordinator goes on with it
    Show {
        #[command(flatten)]
        admin: AdminAddress,
    },
    /// Adopt the coordinator's present history, after it was restored or replaced
    ///
    /// Its tokens are above all earlier ones from now on. Exits with 1 if there is nothing to adopt.
    Adopt {
        #[command(flatten)]
        admin: AdminAddress,
    },
}

pub(super) fn main(command: &CoordinatorCommand) -> ExitCode {
    admin::main("coordinator", ask(command))
}

async fn ask(command: &CoordinatorCommand) -> Result<Value, Failure> {
    match command {
        CoordinatorCommand::Show { admin } => admin.ask(Method::GET, "/v1/coordinator", None).await,
        CoordinatorCommand::Adopt { admin } => {
            admin.ask(Method::POST, "/v1/coordinator/adopt", None).await
        }
    }
}
