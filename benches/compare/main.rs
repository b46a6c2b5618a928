//! `cargo bench --bench compare`: what Fencegate costs, next to its peers on the same machine.
//!
//! Owned here: the order in which the rows are measured. Everything runs on loopback, in a
//! directory of its own; what was started is ended, whatever happens. Each figure is a ratio of
//! slices taken in turn, because the same program varies more between two runs than most of the
//! differences that matter. Deliberately absent: absolute targets, which would hold on one machine
//! only. `docs/benchmarks.md` explains the rows.

mod check;
mod client;
mod gateway;
mod h2load;
mod lab;
mod machine;
mod memory;
mod nginx;
mod peers;
mod process;
mod raises;
mod requests;
mod rows;
mod scrape;
mod secure;
#[path = "../../tests/servers.rs"]
mod servers;
mod shared;
mod slices;
mod startup;
mod stats;
mod stores;
mod table;
mod wrk;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use lab::Lab;
use rows::Row;
use table::Table;

/// Compare Fencegate with its peers, in turns, on this machine.
#[derive(Debug, Parser)]
#[command(name = "compare", bin_name = "cargo bench --bench compare --")]
struct Options {
    /// Few slices: a look at the harness, not a measurement
    #[arg(long)]
    quick: bool,
    /// Measure this row alone; may be repeated
    #[arg(long, value_name = "ROW")]
    only: Vec<Row>,
    /// Spread the requests over this many resources
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    paths: u32,
    /// Given by `cargo bench`; without it (`cargo test --all-targets`) nothing is measured
    #[arg(long, hide = true)]
    bench: bool,
    /// Be the check service behind nginx's `auth_request`
    #[arg(long, hide = true, value_name = "ADDRESS")]
    check_service: Option<SocketAddr>,
}

/// Length of a turn: the shortest that the load generator knows. Many short turns are better than few
/// long ones, because what disturbs the machine then falls on both sides of a ratio.
const SLICE: Duration = Duration::from_secs(1);

impl Options {
    /// Turns that each competitor has.
    fn rounds(&self) -> usize {
        if self.quick { 3 } else { 20 }
    }

    fn wants(&self, row: Row) -> bool {
        self.only.is_empty() || self.only.contains(&row)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.check_service {
        Some(address) => check::serve(address),
        None if options.bench => compare(&options),
        None => {
            println!("nothing was measured: run it with cargo bench --bench compare");
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<()> {
    let peers = peers::find_or_install()?;
    let mut table = Table::default();
    {
        let lab = Lab::open(&peers)?;
        requests::measure(&lab, options, options.rounds(), &mut table)?;
        secure::measure(&lab, options, options.rounds(), &mut table)?;
        if options.wants(Row::Raises) {
            raises::measure(&lab, options.rounds(), &mut table)?;
        }
        shared::measure(&lab, options, options.rounds(), &mut table)?;
        if options.wants(Row::Startup) {
            startup::measure(&lab, options.rounds(), &mut table)?;
        }
        if options.wants(Row::Memory) {
            memory::measure(&lab, &mut table)?;
        }
        if options.wants(Row::Scrape) {
            scrape::measure(&lab, options.rounds(), &mut table)?;
        }
    }
    println!("{table}");
    println!("{}", machine::describe(&peers, options.quick));
    Ok(())
}
