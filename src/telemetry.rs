//! Logs: one JSON object a line on standard error.
//!
//! Written by a thread of its own from a bounded queue: a reader of the log that stands still
//! costs lines, never requests.

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

const QUEUE_LINES: usize = 16_384;

/// Starts logging. `filter` is a level or a list of `target=level`; keep the guard until the end
/// of the process, so that the last lines are written.
///
/// # Errors
/// The filter is not valid.
pub fn start(filter: &str) -> Result<WorkerGuard, tracing_subscriber::filter::ParseError> {
    let filter = EnvFilter::builder().parse(filter)?;
    let (lines, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(QUEUE_LINES)
        .lossy(true)
        .thread_name("log")
        .finish(std::io::stderr());
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_env_filter(filter)
        .with_writer(lines)
        .init();
    Ok(guard)
}
