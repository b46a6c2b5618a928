//! The process as the kernel sees it, under the names that all of Prometheus' clients give it.
//!
//! Own, since the collector of the `prometheus` crate counts processor time in whole seconds.

use std::fs;

use prometheus::{Counter, Gauge, IntGauge, Opts, Registry};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::{gauge, seconds};
use crate::clock::Clock;

/// What is looked up at each scrape.
pub struct Process {
    cpu: Counter,
    open_fds: IntGauge,
    max_fds: IntGauge,
    resident: IntGauge,
    virtual_memory: IntGauge,
    threads: IntGauge,
}

/// The fields of `/proc/self/stat` after the name, which may hold anything; see proc(5).
mod field {
    pub(super) const USER_TICKS: usize = 11;
    pub(super) const SYSTEM_TICKS: usize = 12;
    pub(super) const THREADS: usize = 17;
    pub(super) const START_TICKS: usize = 19;
    pub(super) const VIRTUAL_BYTES: usize = 20;
    pub(super) const RESIDENT_PAGES: usize = 21;
}

impl Process {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry, clock: Clock) -> prometheus::Result<Process> {
        let cpu = Counter::with_opts(Opts::new(
            "process_cpu_seconds_total",
            "Processor time, of the user and of the system.",
        ))?;
        registry.register(Box::new(cpu.clone()))?;
        let started =
            seconds(registry, "process_start_time_seconds", "Start, in seconds since 1970.")?;
        let gauge = |name, help| gauge(registry, name, help);
        let process = Process {
            cpu,
            open_fds: gauge("process_open_fds", "Open file descriptors.")?,
            max_fds: gauge("process_max_fds", "Open file descriptors that it may have.")?,
            resident: gauge("process_resident_memory_bytes", "Resident memory.")?,
            virtual_memory: gauge("process_virtual_memory_bytes", "Virtual memory.")?,
            threads: gauge("process_threads", "Threads.")?,
        };
        process.look();
        set_start(&started, clock);
        Ok(process)
    }

    /// Looks them up. What the kernel does not tell stays as it was.
    pub(crate) fn look(&self) {
        let fields = stat();
        let field = |nth| fields.get(nth).copied();
        if let (Some(user), Some(system)) = (field(field::USER_TICKS), field(field::SYSTEM_TICKS)) {
            let used = ticks(user + system) - self.cpu.get();
            if used > 0.0 {
                self.cpu.inc_by(used);
            }
        }
        let set = |gauge: &IntGauge, value: Option<u64>| {
            if let Some(value) = value {
                gauge.set(value.cast_signed());
            }
        };
        set(&self.threads, field(field::THREADS));
        set(&self.virtual_memory, field(field::VIRTUAL_BYTES));
        let pages = field(field::RESIDENT_PAGES);
        set(&self.resident, pages.map(|pages| pages * page_size() as u64));
        // The look itself opens one.
        let open = fs::read_dir("/proc/self/fd").map(|fds| fds.count().saturating_sub(1) as u64);
        set(&self.open_fds, open.ok());
        set(&self.max_fds, getrlimit(Resource::Nofile).current);
    }
}

fn set_start(started: &Gauge, clock: Clock) {
    let Some(after_boot) = stat().get(field::START_TICKS).copied().map(ticks) else { return };
    // Both count from the start of the machine.
    let up = std::time::Duration::from_nanos(clock.now().as_nanos()).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are exact")]
    let now = clock.wall().as_millis() as f64 / 1000.0;
    started.set(now - (up - after_boot));
}

#[expect(clippy::cast_precision_loss, reason = "exact for some million years")]
fn ticks(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

fn stat() -> Vec<u64> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let numbers = stat.rsplit_once(')').map_or("", |(_, numbers)| numbers);
    // What is no such number, as the state, is of no interest.
    numbers.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect()
}
