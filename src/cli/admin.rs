//! Questions to the admin listener of a running gateway, and what becomes of their answers.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use http::header::AUTHORIZATION;
use reqwest::Method;
use serde_json::Value;

use super::client_args::BearerToken;
use crate::problem::Code;
use crate::worker::{base_url, exit};

#[derive(Debug, clap::Args)]
pub(super) struct AdminAddress {
    /// The gateway's admin listener
    #[arg(long = "admin", env = "FENCEGATE_ADMIN", default_value = "http://127.0.0.1:9090")]
    url: String,
    #[command(flatten)]
    token: BearerToken,
}

/// For the whole exchange with the gateway.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The gateway answered: there is no such thing, or nothing was changed.
const NO_SUCH_THING: u8 = 1;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("--admin {url:?}: {why}; give an address such as http://127.0.0.1:9090")]
    Usage { url: String, why: String },
    #[error("{0}")]
    Token(String),
    #[error("{code}: {detail}")]
    Refused { code: String, detail: String },
    #[error("no answer from {admin}; is it the admin listener of a running gateway? {error}")]
    Unreachable { admin: String, error: reqwest::Error },
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// Prints the answer, or why there is none, as the verb `verb`.
pub(super) fn main(verb: &str, answer: impl Future<Output = Result<Value, Failure>>) -> ExitCode {
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::System)
        .and_then(|runtime| runtime.block_on(answer))
        .and_then(|answer| Ok(writeln!(std::io::stdout(), "{answer:#}")?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string().replace(char::is_control, " ");
            eprintln!("fencegate {verb}: {text}");
            ExitCode::from(failure.exit_code())
        }
    }
}

impl AdminAddress {
    /// Asks the gateway at this address.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let base =
            base_url(&self.url).map_err(|why| Failure::Usage { url: self.url.clone(), why })?;
        let unreachable = |error| Failure::Unreachable { admin: base.clone(), error };
        // The gateway is not behind whatever proxy the environment names for the web.
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER_WITHIN)
            .build()
            .map_err(unreachable)?;
        let mut request = client.request(method, format!("{base}{path}"));
        if let Some(token) = self.token.open().map_err(Failure::Token)? {
            request = request.header(AUTHORIZATION, token.field());
        }
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let answer = request.send().await.map_err(unreachable)?;
        let is_success = answer.status().is_success();
        let body: Value = answer.json().await.map_err(unreachable)?;
        if is_success { Ok(body) } else { Err(refused(&body)) }
    }
}

fn refused(problem: &Value) -> Failure {
    let text = |name: &str| problem[name].as_str().unwrap_or("?").to_owned();
    Failure::Refused { code: text("code"), detail: text("detail") }
}

impl Failure {
    fn exit_code(&self) -> u8 {
        let is_answer = |code: &str| {
            [Code::FenceNotFound, Code::MarkNotRaised, Code::CoordinatorUnchanged]
                .iter()
                .any(|known| known.as_str() == code)
        };
        match self {
            Failure::Usage { .. } | Failure::Token(_) => exit::USAGE,
            Failure::Refused { code, .. } if is_answer(code) => NO_SUCH_THING,
            Failure::Refused { .. } | Failure::Unreachable { .. } => exit::UNAVAILABLE,
            Failure::System(_) => exit::SYSTEM,
        }
    }
}
