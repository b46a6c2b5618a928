//! Slices of competitors, taken in turn.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::lab::Lab;
use crate::process::{CpuTimes, Server};
use crate::{SLICE, h2load, wrk};

/// One of those that have turns.
#[derive(Debug)]
pub(crate) struct Competitor<'a> {
    pub(crate) name: &'static str,
    pub(crate) target: SocketAddr,
    pub(crate) load: Load,
    /// All whose CPU counts.
    pub(crate) servers: Vec<&'a Server>,
}

/// What makes the load, and sends what.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// HTTP/1.1 on plain text: wrk with this script.
    Wrk(PathBuf),
    /// Everything else: h2load.
    H2load(h2load::Writes),
}

/// What a competitor did in one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) cpu_micros_per_request: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) p99_ms: f64,
}

/// Lets every competitor have its turn in every round; answers the slices by competitor, in the
/// order of the rounds. Who begins changes from round to round.
pub(crate) fn take_turns(
    lab: &Lab<'_>,
    competitors: &[Competitor<'_>],
    connections: u32,
    rounds: usize,
) -> Result<Vec<Vec<Slice>>> {
    for competitor in competitors {
        take_slice(lab, competitor, connections)?;
    }
    let mut slices = vec![Vec::with_capacity(rounds); competitors.len()];
    for round in 0..rounds {
        eprintln!("{connections} connections, round {} of {}", round + 1, rounds);
        for turn in 0..competitors.len() {
            let who = (round + turn) % competitors.len();
            slices[who].push(take_slice(lab, &competitors[who], connections)?);
        }
    }
    Ok(slices)
}

fn take_slice(lab: &Lab<'_>, competitor: &Competitor<'_>, connections: u32) -> Result<Slice> {
    let before = cpu(competitor)?;
    let target = competitor.target;
    let report = match &competitor.load {
        Load::Wrk(script) => wrk::run(lab, target, script, connections, SLICE),
        Load::H2load(writes) => h2load::run(lab, target, writes, connections, SLICE),
    };
    let report =
        report.with_context(|| format!("{} at {connections} connections", competitor.name))?;
    let after = cpu(competitor)?;
    let used: Duration = after.iter().zip(&before).map(|(after, before)| after.since(before)).sum();
    Ok(Slice {
        cpu_micros_per_request: used.as_secs_f64() * 1e6 / report.requests,
        requests_per_second: report.requests / report.seconds,
        p99_ms: report.p99_ms,
    })
}

fn cpu(competitor: &Competitor<'_>) -> Result<Vec<CpuTimes>> {
    competitor.servers.iter().map(|server| server.cpu()).collect()
}
