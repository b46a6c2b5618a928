//! A worker that holds the lease of `/reports/may` and writes a line to it every second, against
//! the gateway of the README. Start two of them, stop the one that has the lease with Ctrl-Z for
//! more than ten seconds, and let it go on: it comes too late, is told so, and ends.
//!
//! ```sh
//! cargo run --example worker -- worker-1
//! ```

use std::time::Duration;

use anyhow::Context;
use fencegate::clock::Clock;
use fencegate::worker::{HeldLease, Leases, Terms, Writes};

const RESOURCE: &str = "/reports/may";
const TRIES: u32 = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let owner = std::env::args().nth(1).context("give the worker a name")?;
    // Or straight from etcd or PostgreSQL: `Leases::etcd`, `Leases::postgres`.
    let leases = Leases::api("http://127.0.0.1:8081")?;
    let terms =
        Terms { wait: Duration::from_secs(3600), ..Terms::new(RESOURCE.parse()?, owner.parse()?) };
    println!("{owner} waits for the lease of {RESOURCE}");
    let held = HeldLease::acquire(&leases, Clock::new(), &terms).await?;
    println!("{owner} has it, with token {}", held.token());

    let http = reqwest::Client::new();
    let writes = held.writes(&http);
    let worked = tokio::select! {
        worked = work(&http, &writes, &owner) => worked,
        lost = held.lost() => Err(lost.into()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    held.release().await?;
    worked
}

async fn work(http: &reqwest::Client, writes: &Writes, owner: &str) -> anyhow::Result<()> {
    for line in 1.. {
        write(http, writes, format!("line {line} of {owner}\n")).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Tries again only where nothing was written and a retry can help.
async fn write(http: &reqwest::Client, writes: &Writes, body: String) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        let url = format!("http://127.0.0.1:8080{RESOURCE}");
        let error = match writes.send(http.put(url).body(body.clone()).build()?).await {
            Ok(answer) => {
                answer.error_for_status().context("the API refused it")?;
                return Ok(());
            }
            Err(error) => error,
        };
        let Some(pause) = error.retry_after() else { return Err(error.into()) };
        println!("again in {pause:?}: {:#}", anyhow::Error::from(error));
        tokio::time::sleep(pause).await;
    }
    anyhow::bail!("gave up after {TRIES} tries")
}
