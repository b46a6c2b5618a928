//! Questions to the admin listener of a running gateway, and what becomes of their answers.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::client_args::GatewayArgs;
use crate::problem::Code;
use crate::worker::{ApiClient, NoAnswer, exit};

const DEFAULT: &str = "http://127.0.0.1:9090";

#[derive(Debug, clap::Args)]
pub(super) struct AdminAddress {
    /// The gateway's admin listener
    #[arg(long = "admin", env = "FENCEGATE_ADMIN", default_value = DEFAULT)]
    url: String,
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// For the whole exchange with the gateway.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The gateway answered: there is no such thing, or nothing was changed.
const NO_SUCH_THING: u8 = 1;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{code}: {detail}")]
    Refused { code: String, detail: String },
    #[error("no answer from {admin}; is it the admin listener of a running gateway? {error}")]
    Unreachable { admin: String, error: String },
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
        let client = self.client().map_err(Failure::Usage)?;
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let answer = client.ask(method, path, body, ANSWER_WITHIN).await;
        let unreachable = |error| Failure::Unreachable { admin: self.url.clone(), error };
        let (status, body) = answer.map_err(|error| {
            unreachable(match error {
                NoAnswer::NotSent(why) | NoAnswer::Broken(why) => why,
                NoAnswer::TooLong => "the answer is too long".to_owned(),
            })
        })?;
        let body: Value =
            serde_json::from_slice(&body).map_err(|error| unreachable(error.to_string()))?;
        if status.is_success() { Ok(body) } else { Err(refused(&body)) }
    }

    fn client(&self) -> Result<ApiClient, String> {
        let client = ApiClient::new(&self.url, DEFAULT, &self.gateway.files()?)
            .map_err(|why| format!("--admin {why}"))?;
        Ok(match self.gateway.token()? {
            Some(token) => client.with_token(token),
            None => client,
        })
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
            Failure::Usage(_) => exit::USAGE,
            Failure::Refused { code, .. } if is_answer(code) => NO_SUCH_THING,
            Failure::Refused { .. } | Failure::Unreachable { .. } => exit::UNAVAILABLE,
            Failure::System(_) => exit::SYSTEM,
        }
    }
}
