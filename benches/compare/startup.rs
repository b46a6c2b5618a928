//! Start-up: from starting the program to `/readyz` answering 200, with a million fences in the
//! store and with none.

use std::path::Path;

use anyhow::Result;

use crate::gateway::{Backing, Gateway};
use crate::lab::Lab;
use crate::rows::Row;
use crate::stats::Spread;
use crate::stores;
use crate::table::Table;

/// Measures the row.
pub(crate) fn measure(lab: &Lab<'_>, rounds: usize, table: &mut Table) -> Result<()> {
    let (full, empty) = (stores::full(lab)?, stores::empty(lab)?);
    // Not counted: the first start after filling finds the file in another state than later ones.
    for store in [&full, &empty] {
        start_millis(lab, store)?;
    }
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        eprintln!("start-up, round {} of {}", round + 1, rounds);
        with.push(start_millis(lab, &full)?);
        without.push(start_millis(lab, &empty)?);
    }
    let what = "start-up, 1,000,000 fences / none";
    table.judge(Row::Startup, what, Spread::of_ratios(&with, &without, |millis| *millis));
    table.explain("start-up ms, 1,000,000 fences", Spread::of(with));
    table.explain("start-up ms, no fences", Spread::of(without));
    Ok(())
}

fn start_millis(lab: &Lab<'_>, store: &Path) -> Result<f64> {
    let before = lab.clock.now();
    let gateway = Gateway::start(lab, &Backing::file(store))?;
    let took = lab.clock.now().since(before);
    drop(gateway);
    Ok(took.as_secs_f64() * 1e3)
}
