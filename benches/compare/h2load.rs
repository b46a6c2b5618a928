//! The load generator for TLS and HTTP/2: h2load with one thread, one request at a time on each connection.
//!
//! Closed-loop as wrk is. Both sides of a ratio are measured with it.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fencegate::fence::Token;

use crate::lab::Lab;
use crate::process::{pinned, run_to_end};
use crate::wrk::Report;

const BODY_BYTES: usize = 256;
/// What it may take beyond the slice: connecting, and waiting for the last answers.
const SLACK: Duration = Duration::from_secs(30);

/// What is sent, and how.
#[derive(Clone, Debug)]
pub(crate) struct Writes {
    pub(crate) path: String,
    pub(crate) token: Token,
    /// HTTP/1.1 over TLS; else HTTP/2 on plain text.
    pub(crate) over_tls: bool,
}

/// Runs it for one slice. A refused request or a broken connection is an error.
pub(crate) fn run(
    lab: &Lab<'_>,
    target: SocketAddr,
    writes: &Writes,
    connections: u32,
    slice: Duration,
) -> Result<Report> {
    let body = lab.directory().join("h2load.body");
    let log = lab.directory().join("h2load.log");
    fs::write(&body, [b'x'; BODY_BYTES])?;
    // It appends.
    let _ = fs::remove_file(&log);
    let mut command = pinned(&lab.cores.load, &lab.peers.h2load);
    command
        .args(["-t1", "-m1", &format!("-c{connections}"), &format!("-D{}", slice.as_secs())])
        .args(["-H", ":method: PUT", "-H", &format!("fencing-token: {}", writes.token)])
        .arg("-d")
        .arg(&body)
        .arg(format!("--log-file={}", log.display()));
    if writes.over_tls {
        command.arg("--h1");
    }
    let scheme = if writes.over_tls { "https" } else { "http" };
    command.arg(format!("{scheme}://{target}{}", writes.path));
    let output = run_to_end(command, slice + SLACK).context("h2load")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.contains(" 0 failed, 0 errored, 0 timeout") {
        bail!("h2load: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    let requests = read(&fs::read_to_string(&log)?)?;
    let (Some(first), Some(last)) =
        (requests.iter().map(|r| r.start).min(), requests.iter().map(|r| r.start + r.took).max())
    else {
        bail!("h2load made no request: {text}");
    };
    let mut took: Vec<u64> = requests.iter().map(|request| request.took).collect();
    took.sort_unstable();
    let p99 = took[(took.len() - 1) * 99 / 100];
    Ok(Report {
        requests: requests.len() as f64,
        seconds: Duration::from_micros(last - first).as_secs_f64(),
        p99_ms: Duration::from_micros(p99).as_secs_f64() * 1e3,
    })
}

/// Microseconds.
struct Request {
    start: u64,
    took: u64,
}

fn read(log: &str) -> Result<Vec<Request>> {
    let request = |line: &str| {
        let mut words = line.split_whitespace();
        let mut next = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (start, status, took) = (next()?, next()?, next()?);
        Some((status, Request { start, took }))
    };
    let all: Option<Vec<_>> = log.lines().map(request).collect();
    let all = all.context("the log of h2load cannot be read")?;
    if let Some((status, _)) = all.iter().find(|(status, _)| !(200..300).contains(status)) {
        bail!("a request was answered with {status}");
    }
    Ok(all.into_iter().map(|(_, request)| request).collect())
}
