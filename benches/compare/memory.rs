//! Memory: what 100,000 active resources add to an idle gateway over a store with a million.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use fencegate::fence::Token;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::gateway::{self, Backing, Gateway};
use crate::lab::Lab;
use crate::rows::Row;
use crate::stats::Spread;
use crate::stores;
use crate::table::Table;

pub(crate) const ACTIVE: u32 = 100_000;
const CONNECTIONS: u32 = 64;
/// Has no divisor in common with the number of fences, so that every resource met is another, and
/// neighbours in time are no neighbours in the file.
const STRIDE: u64 = 7_919;
const MIB: f64 = 1024.0 * 1024.0;

/// Measures the row.
pub(crate) fn measure(lab: &Lab<'_>, table: &mut Table) -> Result<()> {
    let gateway = Gateway::start(lab, &Backing::file(&stores::full(lab)?))?;
    let idle = gateway.server.resident_bytes()? as f64 / MIB;
    eprintln!("writing to {ACTIVE} resources");
    lab.block_on(write_to_all(gateway.proxy))?;
    let active = gateway.server.resident_bytes()? as f64 / MIB;
    table.judge(Row::Memory, "MiB that 100,000 active resources add", Spread::of([active - idle]));
    table.explain("resident MiB, idle", Spread::of([idle]));
    table.explain("resident MiB, 100,000 active", Spread::of([active]));
    Ok(())
}

/// Writes to [`ACTIVE`] resources of a full store.
pub(crate) async fn write_to_all(proxy: SocketAddr) -> Result<()> {
    // The store has token 1 of each.
    let token = Token::new(2).context("2 is a token")?;
    let mut writers = JoinSet::new();
    for first in 0..CONNECTIONS {
        writers.spawn(async move {
            let mut client = Client::connect(proxy).await?;
            for at in (first..ACTIVE).step_by(CONNECTIONS as usize) {
                let number = u64::from(at) * STRIDE % u64::from(stores::FENCES);
                let id = stores::full_store_id(u32::try_from(number)?);
                gateway::put(&mut client, &gateway::ordered_path(&id), token).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    Ok(())
}
