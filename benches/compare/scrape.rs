//! A scrape with 100,000 active resources, and with none: it is not to grow with them.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;

use crate::client::Client;
use crate::gateway::{Backing, Gateway};
use crate::lab::Lab;
use crate::memory;
use crate::rows::Row;
use crate::stats::Spread;
use crate::stores;
use crate::table::Table;

/// As a Prometheus scrapes; the text format takes less.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0";
const SCRAPES_PER_ROUND: usize = 20;

/// Measures the row.
pub(crate) fn measure(lab: &Lab<'_>, rounds: usize, table: &mut Table) -> Result<()> {
    let gateway = Gateway::start(lab, &Backing::file(&stores::full(lab)?))?;
    let scrapes = rounds * SCRAPES_PER_ROUND;
    let idle = lab.block_on(scrape(lab, gateway.admin, scrapes))?;
    eprintln!("writing to {} resources", memory::ACTIVE);
    lab.block_on(memory::write_to_all(gateway.proxy))?;
    let active = lab.block_on(scrape(lab, gateway.admin, scrapes))?;
    table.judge(Row::Scrape, "ms of a scrape, 100,000 active resources", Spread::of(active));
    table.explain("ms of a scrape, no active resource", Spread::of(idle));
    Ok(())
}

/// Milliseconds of each of some scrapes, on one connection.
async fn scrape(lab: &Lab<'_>, admin: SocketAddr, scrapes: usize) -> Result<Vec<f64>> {
    let mut client = Client::connect(admin).await?;
    let mut took = Vec::with_capacity(scrapes);
    for _ in 0..scrapes {
        let request = Request::get("/metrics")
            .header(header::ACCEPT, OPENMETRICS)
            .body(Full::from(Bytes::new()))?;
        let began = lab.clock.now();
        let (status, body) = client.send(request).await?;
        took.push(lab.clock.now().since(began).as_secs_f64() * 1e3);
        ensure!(status == StatusCode::OK && body.ends_with(b"# EOF\n"), "{status} to a scrape");
    }
    Ok(took)
}
