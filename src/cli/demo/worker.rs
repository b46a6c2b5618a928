//! A worker: takes a lease, reads the account, adds to it, writes it back with its token.
//!
//! [`work`] is what runs in the worker's process, [`Worker`] is how the demo sees it. Both know the
//! same three reports, one JSON document a line: the token, the account as it was read, the answer
//! to the write. Before the write the worker waits for a line, which is how the demo can be sure to
//! suspend it between reading and writing.
//!
//! Deliberately absent: a last look at the lease before the write. A worker may well be paused
//! between that look and its write, so that it would change the odds and not the story.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::{Client, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::PATIENCE;
use super::api::Account;
use super::process::{Process, Reports};
use crate::fence::{Owner, Token};

#[derive(Debug, clap::Args)]
pub(super) struct WorkerArgs {
    #[arg(long)]
    name: Owner,
    #[arg(long)]
    adds: i64,
    #[arg(long)]
    ttl_ms: u64,
    #[arg(long)]
    lease_url: String,
    #[arg(long)]
    account_url: String,
}

/// The answer to a write.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) version: String,
    /// Code and reason, such as `200 OK`.
    pub(super) status: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

#[derive(Deserialize)]
struct Lease {
    token: Token,
}

/// What the worker's process does.
pub(super) async fn work(args: &WorkerArgs) -> anyhow::Result<()> {
    // A connection for each request: none is left open while the worker is suspended.
    let client =
        Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(PATIENCE).build()?;

    let terms = serde_json::json!({ "owner": args.name.as_str(), "ttl_ms": args.ttl_ms });
    let lease: Lease = json(client.post(&args.lease_url).json(&terms).send().await?).await?;
    report(&lease.token)?;

    let account: Account = json(client.get(&args.account_url).send().await?).await?;
    report(&account)?;

    if std::io::stdin().read_line(&mut String::new())? == 0 {
        bail!("the demo is over");
    }
    let changed =
        Account { balance: account.balance + args.adds, written_by: args.name.to_string() };
    let write = client.put(&args.account_url).header("Fencing-Token", lease.token.get());
    report(&Answer::read(write.json(&changed).send().await?).await?)
}

/// Reads the document that was asked for.
async fn json<T: DeserializeOwned>(answer: Response) -> anyhow::Result<T> {
    let (url, status) = (answer.url().clone(), answer.status());
    let body = answer.text().await?;
    if !status.is_success() {
        bail!("{url} answered {status}: {body}");
    }
    serde_json::from_str(&body).with_context(|| format!("{url} answered {body:?}"))
}

fn report(what: &impl Serialize) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(what)?)?)
}

impl Answer {
    async fn read(answer: Response) -> anyhow::Result<Answer> {
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
        Ok(Answer {
            version: format!("{:?}", answer.version()),
            status: answer.status().to_string(),
            headers: answer
                .headers()
                .iter()
                .map(|(name, value)| (name.to_string(), text(value)))
                .collect(),
            body: answer.text().await?,
        })
    }
}

/// A worker as the demo sees it.
pub(super) struct Worker {
    name: &'static str,
    pub(super) process: Process,
}

impl Worker {
    /// Starts it. It asks for its lease at once.
    pub(super) fn start(
        name: &'static str,
        adds: i64,
        ttl: Duration,
        lease_url: &str,
        account_url: &str,
    ) -> anyhow::Result<Worker> {
        let (adds, ttl_ms) = (adds.to_string(), ttl.as_millis().to_string());
        let args = [
            ["--name", name],
            ["--adds", &adds],
            ["--ttl-ms", &ttl_ms],
            ["--lease-url", lease_url],
            ["--account-url", account_url],
        ];
        let called = format!("worker {name}");
        let process = Process::start(&called, "worker", args.as_flattened(), Reports::OnStdout)?;
        Ok(Worker { name, process })
    }

    /// The token of its lease.
    pub(super) async fn token(&mut self) -> anyhow::Result<Token> {
        self.next_report("a lease").await
    }

    /// The balance that it read.
    pub(super) async fn balance(&mut self) -> anyhow::Result<i64> {
        Ok(self.next_report::<Account>("the account").await?.balance)
    }

    /// Lets it write, as soon as it runs.
    pub(super) fn may_write(&mut self) -> anyhow::Result<()> {
        self.process.tell("write")
    }

    /// The answer to its write.
    pub(super) async fn answer(&mut self) -> anyhow::Result<Answer> {
        self.next_report("an answer to its write").await
    }

    async fn next_report<T: DeserializeOwned>(&mut self, what: &str) -> anyhow::Result<T> {
        let name = self.name;
        let line = self.process.line().await?;
        let line = line.with_context(|| format!("worker {name} ended before it had {what}"))?;
        serde_json::from_str(&line).with_context(|| format!("worker {name} reported {line:?}"))
    }
}
