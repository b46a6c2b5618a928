//! `fencegate fence`: the fences of a running gateway, through its admin listener.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::fence::{Resource, Token};
use crate::problem::Code;
use crate::worker::{base_url, escape, exit, path_segment};

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

#[derive(Debug, clap::Args)]
pub(super) struct AdminAddress {
    /// The gateway's admin listener
    #[arg(long = "admin", env = "FENCEGATE_ADMIN", default_value = "http://127.0.0.1:9090")]
    url: String,
}

/// For the whole exchange with the gateway.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The gateway answered: there is no such fence, or its mark was not raised.
const NO_SUCH_THING: u8 = 1;

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("--admin {url:?}: {why}; give an address such as http://127.0.0.1:9090")]
    Usage { url: String, why: String },
    #[error("{code}: {detail}")]
    Refused { code: String, detail: String },
    #[error("no answer from {admin}; is it the admin listener of a running gateway? {error}")]
    Unreachable { admin: String, error: reqwest::Error },
    #[error(transparent)]
    System(#[from] std::io::Error),
}

pub(super) fn main(command: &FenceCommand) -> ExitCode {
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::System)
        .and_then(|runtime| runtime.block_on(ask(command)))
        .and_then(|answer| Ok(writeln!(std::io::stdout(), "{answer:#}")?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string().replace(char::is_control, " ");
            eprintln!("fencegate fence: {text}");
            ExitCode::from(failure.exit_code())
        }
    }
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
    let base =
        base_url(&admin.url).map_err(|why| Failure::Usage { url: admin.url.clone(), why })?;
    let unreachable = |error| Failure::Unreachable { admin: base.clone(), error };
    // The gateway is not behind whatever proxy the environment names for the web.
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(ANSWER_WITHIN)
        .build()
        .map_err(unreachable)?;
    let mut request = client.request(method, format!("{base}{path}"));
    if let FenceCommand::Raise { token, .. } = command {
        request = request.body(json!({ "token": token }).to_string());
    }
    let answer = request.send().await.map_err(unreachable)?;
    let is_success = answer.status().is_success();
    let body: Value = answer.json().await.map_err(unreachable)?;
    if is_success { Ok(body) } else { Err(refused(&body)) }
}

fn path_of(resource: &Resource) -> Result<String, Failure> {
    let segment = path_segment(resource).map_err(|detail| Failure::Refused {
        code: Code::UnresolvableResource.as_str().to_owned(),
        detail: detail.to_owned(),
    })?;
    Ok(format!("/v1/fences/{segment}"))
}

fn refused(problem: &Value) -> Failure {
    let text = |name: &str| problem[name].as_str().unwrap_or("?").to_owned();
    Failure::Refused { code: text("code"), detail: text("detail") }
}

impl Failure {
    fn exit_code(&self) -> u8 {
        let is_answer = |code: &str| {
            [Code::FenceNotFound, Code::MarkNotRaised].iter().any(|known| known.as_str() == code)
        };
        match self {
            Failure::Usage { .. } => exit::USAGE,
            Failure::Refused { code, .. } if is_answer(code) => NO_SUCH_THING,
            Failure::Refused { .. } | Failure::Unreachable { .. } => exit::UNAVAILABLE,
            Failure::System(_) => exit::SYSTEM,
        }
    }
}
