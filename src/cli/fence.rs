//! `fencegate fence`: the fences of a running gateway, through its admin listener.

use std::process::ExitCode;

use http::Method;
use serde_json::{Value, json};

use super::admin::{self, AdminAddress, Failure};
use crate::fence::{Resource, Token};
use crate::problem::Code;
use crate::worker::{escape, path_segment};

#[derive(Debug, clap::Subcommand)]
pub(super) enum FenceCommand {
    /// Print fences as JSON, one page
    List {
        /// Only resources after this one
        #[arg(long, value_name = "RESOURCE")]
        after: Option<Resource>,
        /// Rows at the most
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        admin: AdminAddress,
    },
    /// Print one fence as JSON; exits with 1 if there is none
    Show {
        /// Whose fence
        #[arg(long)]
        resource: Resource,
        #[command(flatten)]
        admin: AdminAddress,
    },
    /// Raise a mark, so that every lower token is refused from now on
    ///
    /// It admits nobody: the token itself still has to be confirmed as the holder's. A mark is never
    /// lowered again. Exits with 1 if it is there already, or higher.
    Raise {
        /// Whose fence
        #[arg(long)]
        resource: Resource,
        /// The new mark
        #[arg(long)]
        token: Token,
        #[command(flatten)]
        admin: AdminAddress,
    },
    /// Print writes whose outcome is unknown as JSON
    InDoubt {
        /// Rows at the most
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        admin: AdminAddress,
    },
}

pub(super) fn main(command: &FenceCommand) -> ExitCode {
    admin::main("fence", ask(command))
}

async fn ask(command: &FenceCommand) -> Result<Value, Failure> {
    let (method, admin, path) = match command {
        FenceCommand::List { after, limit, admin } => {
            let after = after.as_ref().map(|after| format!("&after={}", escape(after.as_str())));
            let after = after.unwrap_or_default();
            (Method::GET, admin, format!("/v1/fences?limit={limit}{after}"))
        }
        FenceCommand::Show { resource, admin } => (Method::GET, admin, path_of(resource)?),
        FenceCommand::Raise { resource, admin, .. } => (Method::POST, admin, path_of(resource)?),
        FenceCommand::InDoubt { limit, admin } => {
            (Method::GET, admin, format!("/v1/in-doubt?limit={limit}"))
        }
    };
    let body = match command {
        FenceCommand::Raise { token, .. } => Some(json!({ "token": token })),
        _ => None,
    };
    admin.ask(method, &path, body).await
}

fn path_of(resource: &Resource) -> Result<String, Failure> {
    let segment = path_segment(resource).map_err(|detail| Failure::Refused {
        code: Code::UnresolvableResource.as_str().to_owned(),
        detail: detail.to_owned(),
    })?;
    Ok(format!("/v1/fences/{segment}"))
}
