//! `fencegate run` and `fencegate lease` as their users see them: real processes, real signals,
//! real curl. Only the lease API is made for the tests, to be slow and to be gone at will.

#![allow(clippy::unwrap_used, reason = "clippy sees tests only in functions marked as such")]

mod command;
mod etcd;
mod lease_server;
mod lease_verbs;
mod lost;
mod stamp;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use fencegate::clock::Clock;
use rustix::process::{Pid, Signal};
use tokio_util::sync::CancellationToken;

use lease_server::LeaseServer;

const PATIENCE: Duration = Duration::from_secs(20);

fn fencegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencegate"));
    command.stdin(Stdio::null()).env_remove("FENCEGATE_LEASES");
    command
}

/// `fencegate run OPTIONS -- sh -c SCRIPT`, with the lease `job`.
fn run(server: &LeaseServer, options: &[&str], script: &str) -> Command {
    let mut command = fencegate();
    command.args(["run", "--resource", "job", "--leases", &server.url()]);
    command.args(options).args(["--", "sh", "-c", script]);
    command
}

fn output(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().expect("fencegate is not killed"), text(stdout), text(stderr))
}

/// Serves until it is cancelled, then cuts every connection.
fn serve(routes: axum::Router) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(stopped.run_until_cancelled_owned(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, routes).await.unwrap();
        }));
        // Dropping the runtime drops the connections.
    });
    (address, stop, thread)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::new();
    let give_up = clock.now() + PATIENCE;
    while !is_so() {
        assert!(clock.now() < give_up, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for `count` process numbers, one a line.
fn pids(file: &Path, count: usize) -> Vec<Pid> {
    let read = || std::fs::read_to_string(file).unwrap_or_default();
    wait_until("the processes are there", || read().lines().count() >= count);
    read().lines().map(|line| Pid::from_raw(line.parse().unwrap()).unwrap()).collect()
}

fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // A zombie does nothing any more.
    stat.is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.contains(") T "))
}

fn kill(pid: Pid, signal: Signal) {
    rustix::process::kill_process(pid, signal).unwrap();
}
