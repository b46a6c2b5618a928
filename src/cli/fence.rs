//! `fencegate fence`: the fences of a running gateway, through its admin listener.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;

use crate::fence::{Resource, Token};
use crate::worker::exit;

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
    /// Print one fence as JSON
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
    /// lowered again.
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

#[derive(Debug, clap::Args)]
pub(super) struct AdminAddress {
    /// The gateway's admin listener
    #[arg(long = "admin", env = "FENCEGATE_ADMIN", default_value = "http://127.0.0.1:9090")]
    url: String,
}

/// For the whole exchange with the gateway.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

pub(super) fn main(command: &FenceCommand) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let printed = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(ask(command)));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fencegate fence: {error:#}");
            exit::UNAVAILABLE.into()
        }
    }
}

async fn ask(command: &FenceCommand) -> anyhow::Result<()> {
    let (method, admin, path) = match command {
        FenceCommand::List { after, limit, admin } => {
            let after = after
                .as_ref()
                .map_or_else(String::new, |after| format!("&after={}", encoded(after)));
            (Method::GET, admin, format!("/v1/fences?limit={limit}{after}"))
        }
        FenceCommand::Show { resource, admin } => {
            (Method::GET, admin, format!("/v1/fences/{}", encoded(resource)))
        }
        FenceCommand::Raise { resource, admin, .. } => {
            (Method::POST, admin, format!("/v1/fences/{}", encoded(resource)))
        }
        FenceCommand::InDoubt { limit, admin } => {
            (Method::GET, admin, format!("/v1/in-doubt?limit={limit}"))
        }
    };
    // The gateway is not behind whatever proxy the environment names for the web.
    let client = reqwest::Client::builder().no_proxy().timeout(ANSWER_WITHIN).build()?;
    let url = format!("{}{path}", admin.url.trim_end_matches('/'));
    let mut request = client.request(method, &url);
    if let FenceCommand::Raise { token, .. } = command {
        request = request.json(&serde_json::json!({ "token": token }));
    }
    let answer = request.send().await.with_context(|| {
        format!("no answer from {}; is it the admin listener of a running gateway?", admin.url)
    })?;
    let is_success = answer.status().is_success();
    let body: serde_json::Value = answer.json().await.context("the answer is not JSON")?;
    if !is_success {
        bail!("{}: {}", text(&body["code"]), text(&body["detail"]));
    }
    println!("{body:#}");
    Ok(())
}

fn encoded(resource: &Resource) -> impl std::fmt::Display {
    utf8_percent_encode(resource.as_str(), NON_ALPHANUMERIC)
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or("?")
}
