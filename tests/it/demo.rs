//! `fencegate demo`, as a reader runs it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::wait_until;

/// The demo, with a place for temporary files of its own.
fn demo(temporary: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencegate"));
    command.arg("demo").env("TMPDIR", temporary.path()).stdin(Stdio::null());
    command
}

/// Starts the demo, and waits until worker A is suspended.
fn until_suspended(temporary: &TempDir) -> Child {
    let mut demo = demo(temporary)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary was built");
    // Not closed before the demo is over: it would notice.
    let output = demo.stdout.as_mut().expect("a pipe");
    let is_suspended = |line: Result<String, _>| line.expect("text").contains("is suspended");
    assert!(BufReader::new(output).lines().any(is_suspended), "the demo ended");
    demo
}

/// State and parent of a process; `None` when it is gone.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn children(parent: u32) -> Vec<u32> {
    fs::read_dir("/proc")
        .expect("a Linux system")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| stat(*pid).is_some_and(|(_, its_parent)| its_parent == parent))
        .collect()
}

/// One that is dead but not yet waited for runs no more.
fn runs(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).expect("a directory").next().is_none()
}

#[test]
fn the_demo_shows_the_lost_update_and_then_the_refusal() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let began = Instant::now();

    let run = demo(&temporary).output().expect("the binary was built");

    let text = String::from_utf8(run.stdout).expect("text");
    assert!(run.status.success(), "{text}{}", String::from_utf8_lossy(&run.stderr));
    assert!(began.elapsed() < Duration::from_secs(15));
    assert!(is_empty(temporary.path()));
    assert!(!text.contains('\x1b'), "no colour outside a terminal");
    for line in text.lines() {
        assert!(line.chars().count() <= 80 && line == line.trim_end(), "{line:?}");
    }
    let mut rest = text.as_str();
    for landmark in [
        "A takes the lease for 2 s: token 1",
        "A is suspended",
        "A's lease runs out",
        "B takes the lease: token 2",
        "B reads 100 and writes 130: 200 OK",
        "A is resumed",
        "A writes 150: 200 OK",
        "The API holds 150: B's 30 are lost",
        "A takes the lease for 2 s: token 1",
        "B reads 100 and writes 130: 200 OK",
        "A is resumed",
        "A writes 150: 412 Precondition Failed",
        "The API holds 130: A's write did not reach it",
        "HTTP/1.1 412 Precondition Failed",
        "\"code\": \"stale_fencing_token\"",
        "B 130, then A 150     B 130",
        "What to do next",
    ] {
        let (_, after) = rest.split_once(landmark).unwrap_or_else(|| panic!("{landmark}: {text}"));
        rest = after;
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("  ok  ")).count(), 4);
    let seconds: Vec<f64> =
        text.lines().filter_map(|line| line.split_once(" s  ")?.0.trim().parse().ok()).collect();
    assert_eq!(seconds.len(), 18);
    assert!(seconds.is_sorted(), "{seconds:?}");
}

#[test]
fn a_killed_demo_leaves_no_process() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let mut demo = until_suspended(&temporary);
    let children = children(demo.id());
    assert_eq!(children.len(), 2, "the gateway and worker A");

    demo.kill().expect("it runs");

    demo.wait().expect("our child");
    wait_until("all of its processes end", || !children.iter().any(|pid| runs(*pid)));
}

#[test]
fn an_interrupted_demo_leaves_no_process_and_no_file() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let mut demo = until_suspended(&temporary);
        let children = children(demo.id());

        kill_process(Pid::from_child(&demo), signal).expect("it runs");

        assert_eq!(demo.wait().expect("our child").code(), Some(1));
        assert!(!children.iter().any(|pid| runs(*pid)));
        assert!(is_empty(temporary.path()));
    }
}
