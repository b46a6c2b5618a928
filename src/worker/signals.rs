//! The signals that `fencegate run` passes on instead of dying of them: it has to stay alive to
//! watch over the lease.
//!
//! A signal that this process was started with as ignored (`nohup`, a shell's background job)
//! stays ignored, here and in the command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

const PASSED_ON: [Signal; 7] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    // Ctrl-Z: the command must not go on while nobody watches over its lease.
    Signal::TSTP,
];

pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From now on these signals no longer end this process.
    pub(super) fn listen() -> io::Result<Signals> {
        let ignored = ignored_mask();
        let listen =
            |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        let heeded = |signal: &Signal| ignored >> (signal.as_raw() - 1) & 1 == 0;
        PASSED_ON.into_iter().filter(heeded).map(listen).collect::<io::Result<_>>().map(Signals)
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Bit n-1 stands for signal n.
fn ignored_mask() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
