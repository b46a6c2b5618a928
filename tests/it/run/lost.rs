//! The lease is lost: the whole process group is dead before the TTL is over.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fencegate::clock::Clock;
use rustix::process::{Pid, Signal};

use super::{LeaseServer, is_alive, kill, pids, run, wait_until};

/// A shell that ignores everything it can, with children and grandchildren alike; three processes.
fn stubborn(pids: &Path) -> String {
    let one = format!("echo $$ >> {}; while :; do sleep 0.01; done", pids.display());
    format!("trap '' TERM HUP INT; sh -c 'sh -c \"{}\" & {one}' & {one}", one.replace('$', "\\$"))
}

#[test]
fn group_is_dead_before_the_deadline_when_the_coordinator_is_gone() {
    let mut server = LeaseServer::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let child =
        run(&server, &["--ttl", "2s"], &stubborn(&file)).stderr(Stdio::piped()).spawn().unwrap();
    let group = pids(&file, 3);
    wait_until("the lease is renewed", || server.book.lock().unwrap().renewals > 0);
    server.go_away();
    let expires_at = server.lease("job").unwrap().expires_at;
    wait_until("the group is dead", || !group.iter().any(|pid| is_alive(*pid)));
    assert!(Clock::new().now() < expires_at, "not dead before the lease was over");

    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(76));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let said = "fencegate run: job: token 1: lease lost: no renewal was confirmed in time (";
    assert!(stderr.starts_with(said), "{stderr}");
}

#[test]
fn group_is_ended_when_the_coordinator_says_that_the_lease_is_lost() {
    let server = LeaseServer::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let options = ["--ttl", "3s", "--kill-after", "200ms"];
    let child = run(&server, &options, &stubborn(&file)).stderr(Stdio::piped()).spawn().unwrap();
    let group = pids(&file, 3);
    let expires_at = server.lease("job").unwrap().expires_at;
    server.hold("job", Duration::from_secs(60));
    wait_until("the group is dead", || !group.iter().any(|pid| is_alive(*pid)));
    // The renewal was due a second after the acquisition; the lease would have lasted three.
    assert!(Duration::from_millis(800) < expires_at.since(Clock::new().now()));

    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(76));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("the coordinator ended it: the words for lease_lost"), "{stderr}");
    assert_eq!(server.lease("job").unwrap().owner, "somebody");
}

#[test]
fn polite_command_is_ended_with_sigterm() {
    let server = LeaseServer::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let script = format!(
        "trap 'echo cleaned up; exit 0' TERM; echo $$ > {}; while :; do sleep 0.01; done",
        file.display()
    );
    let child = run(&server, &["--ttl", "1500ms"], &script).stdout(Stdio::piped()).spawn().unwrap();
    pids(&file, 1);
    server.hold("job", Duration::from_secs(60));
    let output = child.wait_with_output().unwrap();
    // Its own exit code would look like a success.
    assert_eq!(output.status.code(), Some(76));
    assert_eq!(output.stdout, b"cleaned up\n");
}

#[test]
fn suspended_run_kills_its_group_at_once_when_it_wakes_too_late() {
    let server = LeaseServer::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let child =
        run(&server, &["--ttl", "1s"], &stubborn(&file)).stderr(Stdio::piped()).spawn().unwrap();
    let group = pids(&file, 3);
    let run = Pid::from_child(&child);
    kill(run, Signal::STOP);
    group.iter().for_each(|pid| kill(*pid, Signal::STOP));
    let clock = Clock::new();
    wait_until("the lease has expired", || server.lease("job").unwrap().expires_at < clock.now());
    assert!(group.iter().all(|pid| is_alive(*pid)));

    let woken_at = clock.now();
    kill(run, Signal::CONT);
    group.iter().for_each(|pid| {
        let _ = rustix::process::kill_process(*pid, Signal::CONT);
    });
    wait_until("the group is dead", || !group.iter().any(|pid| is_alive(*pid)));
    assert!(clock.now().since(woken_at) < Duration::from_millis(500));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(76));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("command killed"), "{stderr}");
    assert!(!stderr.contains("not released"), "that the lease is over is known: {stderr}");
}

#[test]
fn slow_coordinator_does_not_cost_the_lease() {
    let server = LeaseServer::start();
    server.book.lock().unwrap().renewal_delay = Duration::from_millis(300);
    let child = run(&server, &["--ttl", "1500ms"], "sleep 4; exit 3").spawn().unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(3));
    assert!(server.book.lock().unwrap().renewals >= 3);
}

#[test]
fn coordinator_that_comes_back_in_time_does_not_cost_the_lease() {
    // A renewal that hangs is given up in time for another one.
    let server = LeaseServer::start();
    server.book.lock().unwrap().renewal_delay = Duration::from_secs(60);
    let child = run(&server, &["--ttl", "3s"], "sleep 4; exit 3").spawn().unwrap();
    wait_until("it is acquired", || server.lease("job").is_some());
    let (clock, acquired) = (Clock::new(), server.lease("job").unwrap());
    wait_until("the first renewal hangs", || {
        acquired.expires_at.since(clock.now()) < Duration::from_millis(1800)
    });
    server.book.lock().unwrap().renewal_delay = Duration::ZERO;
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(3));
}
