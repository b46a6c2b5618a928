//! Raises: writes that each bring a newer token, so that each has to be made durable before it is
//! forwarded. In parallel on 64 resources they can share commits; one at a time they cannot.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use fencegate::clock::Boottime;
use fencegate::fence::Token;
use tokio::task::JoinSet;

use crate::SLICE;
use crate::client::Client;
use crate::gateway::{self, Gateway};
use crate::lab::Lab;
use crate::rows::Row;
use crate::stats::Spread;
use crate::table::Table;

const RESOURCES: usize = 64;

/// What one write with a new token takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Tokens from elsewhere: the raise alone.
    Ordered,
    /// A lease taken before each write: handover after handover.
    Held,
}

/// Where the slices go to, and the token that was last sent to an ordered route.
pub(crate) struct Target {
    proxy: SocketAddr,
    leases: SocketAddr,
    last_token: AtomicU64,
}

impl Target {
    pub(crate) fn new(proxy: SocketAddr, leases: SocketAddr) -> Target {
        Target { proxy, leases, last_token: AtomicU64::new(0) }
    }
}

/// Measures the row.
pub(crate) fn measure(lab: &Lab<'_>, rounds: usize, table: &mut Table) -> Result<()> {
    let gateway = Gateway::start(lab, &gateway::own_file(lab, "raises"))?;
    let target = Arc::new(Target::new(gateway.proxy, gateway.leases));
    for (kind, name) in [(Kind::Ordered, "raises"), (Kind::Held, "leases + raises")] {
        let slice = |connections| per_second(lab, &target, kind, connections);
        slice(RESOURCES)?;
        let (mut parallel, mut single) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            eprintln!("{name}, round {} of {}", round + 1, rounds);
            parallel.push(slice(RESOURCES)?);
            single.push(slice(1)?);
        }
        let ratio = Spread::of_ratios(&parallel, &single, |rate| *rate);
        let what = format!("{name}/s, 64 in parallel / 1 at a time");
        match kind {
            Kind::Ordered => table.judge(Row::Raises, what, ratio),
            Kind::Held => table.explain(what, ratio),
        }
        table.explain(format!("{name}/s, 64 in parallel"), Spread::of(parallel));
        table.explain(format!("{name}/s, 1 at a time"), Spread::of(single));
    }
    let syncs = (0..rounds).map(|_| syncs_per_second(lab)).collect::<Result<Vec<f64>>>()?;
    table.explain("fdatasync of 4 KiB/s on this disk", Spread::of(syncs));
    Ok(())
}

/// Raises per second over so many connections, in one slice.
pub(crate) fn per_second(
    lab: &Lab<'_>,
    target: &Arc<Target>,
    kind: Kind,
    connections: usize,
) -> Result<f64> {
    let begin = lab.clock.now();
    let end = begin + SLICE;
    let raises = lab.block_on(async {
        let mut writers = JoinSet::new();
        for first in 0..connections {
            let (clock, target) = (lab.clock, Arc::clone(target));
            let resources = (first..RESOURCES).step_by(connections);
            writers.spawn(async move {
                raise_until(|| clock.now() >= end, &target, kind, resources).await
            });
        }
        let mut raises = 0;
        while let Some(done) = writers.join_next().await {
            raises += done??;
        }
        Ok(raises)
    })?;
    Ok(f64::from(raises) / seconds(begin, lab.clock.now()))
}

/// Raises its resources in turn, each time with a newer token, and counts.
async fn raise_until(
    over: impl Fn() -> bool,
    target: &Target,
    kind: Kind,
    resources: impl Iterator<Item = usize> + Clone,
) -> Result<u32> {
    let mut proxy = Client::connect(target.proxy).await?;
    let mut leases = Client::connect(target.leases).await?;
    let mut raises = 0;
    for resource in resources.cycle() {
        if over() {
            break;
        }
        let id = format!("raised{resource}");
        let (path, token) = match kind {
            Kind::Ordered => {
                let token = target.last_token.fetch_add(1, Ordering::Relaxed) + 1;
                (gateway::ordered_path(&id), Token::new(token).context("out of tokens")?)
            }
            Kind::Held => (gateway::held_path(&id), gateway::acquire(&mut leases, &id).await?),
        };
        gateway::put(&mut proxy, &path, token).await?;
        raises += 1;
    }
    Ok(raises)
}

/// What the disk could do at best, had every raise a sync of its own.
fn syncs_per_second(lab: &Lab<'_>) -> Result<f64> {
    const SYNCS: u32 = 300;
    let mut file = File::create(lab.directory().join("synced"))?;
    let begin = lab.clock.now();
    for _ in 0..SYNCS {
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
    }
    Ok(f64::from(SYNCS) / seconds(begin, lab.clock.now()))
}

fn seconds(from: Boottime, to: Boottime) -> f64 {
    to.since(from).as_secs_f64()
}
