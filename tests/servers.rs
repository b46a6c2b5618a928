//! Real servers for tests: each in a directory and on ports of its own, ended by its process number when
//! dropped, also by a test that fails. Used by the unit tests and by `tests/it`.

#![allow(dead_code, reason = "each of the test binaries uses a part of it")]
#![allow(unreachable_pub, reason = "a test has no outside")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "a test measures with whatever clock it likes")]

// Named in full, as this file is a module of several crates in different places.
#[path = "servers/etcd.rs"]
pub mod etcd;
#[path = "servers/pgbouncer.rs"]
pub mod pgbouncer;
#[path = "servers/postgres.rs"]
pub mod postgres;
#[path = "servers/prometheus.rs"]
pub mod prometheus;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes on a loaded machine; reached only when a test fails.
pub const SOON: Duration = Duration::from_secs(60);

/// A port that nobody listens on now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until `level` holds.
#[track_caller]
pub fn wait_until(what: &str, mut level: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !level() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a program to its end and answers what it printed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("the program is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program as `user`, where that is not who runs the test: some servers refuse to be root's.
fn as_user(user: &str, program: &Path) -> Command {
    if !rustix::process::getuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(program);
    command
}

/// Signals a process that was not waited for yet: later its number may be somebody else's.
fn signal(child: &mut Child, signal: Signal) {
    if matches!(child.try_wait(), Ok(None)) {
        let _ = kill_process(Pid::from_child(child), signal);
    }
}
