//! What `fencegate run` says on standard error.
//!
//! Invariant: saying something never waits. Standard error may be a pipe that nobody reads, and a
//! run that hangs in a message would not end its command in time. So a thread of its own writes;
//! what it cannot keep up with is dropped.

use std::fmt::Display;
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

const LINES_WAITING_MAX: usize = 64;
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Report {
    prefix: String,
    lines: SyncSender<String>,
    written: Receiver<()>,
}

impl Report {
    pub(super) fn start(prefix: String) -> Report {
        let (lines, waiting) = sync_channel::<String>(LINES_WAITING_MAX);
        let (done, written) = sync_channel(1);
        // Without the thread nothing is said, which is better than not to run.
        let _ = std::thread::Builder::new().spawn(move || {
            for line in waiting {
                // Nobody is left to be told that standard error is gone.
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            let _ = done.send(());
        });
        Report { prefix, lines, written }
    }

    /// One line. Control characters in it (it may hold a server's words) become spaces.
    pub(super) fn say(&self, what: impl Display) {
        let line = format!("{}: {what}", self.prefix).replace(char::is_control, " ");
        let _ = self.lines.try_send(line);
    }

    /// Waits, within bounds, until everything is written.
    pub(super) fn finish(self) {
        drop(self.lines);
        let _ = self.written.recv_timeout(FLUSH_TIMEOUT);
    }
}
