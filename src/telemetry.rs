//! Logs: one JSON object a line on standard error.
//!
//! Written by a thread of its own from a bounded queue: a reader of the log that stands still
//! costs lines, never requests.

use std::io::{self, BufWriter, Stderr, Write};
use std::thread::sleep;
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

const QUEUE_LINES: usize = 16_384;
/// Between writes: a thread that sleeps is not woken for each line, which costs those who log more than the line.
const PAUSE: Duration = Duration::from_millis(1);
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Reads `info`, or `warn,fencegate::fences=debug`: levels, and levels of single targets.
///
/// # Errors
/// What is wrong with it. A lone word that is no level is refused too: the filter's own syntax
/// takes it for a target, and then nothing else would be logged.
pub fn filter(text: &str) -> Result<EnvFilter, String> {
    for directive in text.split(',') {
        let (_, level) = directive.rsplit_once('=').unwrap_or(("", directive));
        if !LEVELS.contains(&level) {
            return Err(format!("{level:?} is none of the levels {}", LEVELS.join(", ")));
        }
    }
    EnvFilter::builder().parse(text).map_err(|error| error.to_string())
}

/// What is logged. Keep it until the end of the process, so that the last lines are written.
pub struct Log {
    /// Counts lines that nobody read in time.
    pub dropped: ErrorCounter,
    _writing: WorkerGuard,
}

/// Starts logging.
#[must_use]
pub fn start(filter: EnvFilter) -> Log {
    let (lines, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(QUEUE_LINES)
        .lossy(true)
        .thread_name("log")
        .finish(Paced(BufWriter::new(io::stderr())));
    let dropped = lines.error_counter();
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_env_filter(filter)
        .with_writer(lines)
        .init();
    Log { dropped, _writing: guard }
}

/// Lines that come at the same time are written together.
struct Paced(BufWriter<Stderr>);

impl Write for Paced {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.0.write(lines)
    }

    /// Called when no further line waits.
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        sleep(PAUSE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_levels_and_levels_of_targets() {
        for good in ["off", "info", "trace", "warn,fencegate::fences=debug", "fencegate=off"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["", "loud", "INFO ", "info,", "fencegate=loud", "fencegate", "info,=="] {
            assert!(filter(bad).is_err(), "{bad:?}");
        }
    }
}
