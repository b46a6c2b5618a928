//! The command: its exit code, its environment, its signals, its end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::{LeaseServer, fencegate, is_alive, is_stopped, kill, output, pids, run, wait_until};

#[test]
fn exit_code_of_the_command_is_passed_on_and_the_lease_released() {
    let server = LeaseServer::start();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)] {
        let (exit, _, stderr) = output(run(&server, &[], script));
        assert_eq!((exit, stderr.as_str()), (code, ""), "{script}");
        assert!(server.lease("job").is_none(), "{script}");
    }
}

#[test]
fn environment_and_streams_pass_untouched_and_only_three_variables_are_added() {
    let server = LeaseServer::start();
    let mut command = run(&server, &["--owner", "me"], "cat; env -0; echo err >&2");
    let odd = OsStr::from_bytes(b"a\xff\n=b ");
    command.env_clear().env("PATH", "/usr/bin:/bin").env("ODD", odd).env("http_proxy", "x");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"in\0").unwrap();
    let output = child.wait_with_output().unwrap();

    assert_eq!(output.stderr, b"err\n");
    let mut parts: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
    parts.retain(|part| !part.is_empty() && !part.starts_with(b"PWD="));
    assert_eq!(parts.remove(0), b"in");
    let proxy = parts.iter().position(|part| part.starts_with(b"FENCING_PROXY=http://127.0.0.1:"));
    parts.remove(proxy.expect("a proxy is named"));
    parts.sort_unstable();
    let expected: [&[u8]; 5] = [
        b"FENCING_RESOURCE=job",
        b"FENCING_TOKEN=1",
        b"ODD=a\xff\n=b ",
        b"PATH=/usr/bin:/bin",
        b"http_proxy=x",
    ];
    assert_eq!(parts, expected);
}

#[test]
fn held_lease_is_skipped_failed_or_waited_for() {
    let server = LeaseServer::start();
    let script = "echo ran $FENCING_TOKEN";
    server.hold("job", Duration::from_secs(60));
    let (exit, stdout, stderr) = output(run(&server, &["--on-held", "skip"], script));
    assert_eq!((exit, stdout.as_str()), (0, ""));
    assert!(
        stderr.starts_with("fencegate run: job: the lease is held by \"somebody\" with token 1")
    );
    let (exit, stdout, _) = output(run(&server, &[], script));
    assert_eq!((exit, stdout.as_str()), (75, ""));
    let (exit, stdout, _) = output(run(&server, &["--on-held", "wait", "--wait", "300ms"], script));
    assert_eq!((exit, stdout.as_str()), (75, ""));

    // The wait is longer than the TTL: the time that is spent waiting does not count against it.
    server.hold("job", Duration::from_millis(1500));
    let (exit, stdout, stderr) =
        output(run(&server, &["--on-held", "wait", "--ttl", "1s"], script));
    assert_eq!((exit, stdout.as_str()), (0, "ran 3\n"));
    let [said] = &stderr.lines().collect::<Vec<_>>()[..] else { panic!("{stderr}") };
    assert!(said.starts_with("fencegate run: job: the lease is held by \"somebody\" with token 2"));
    assert!(said.ends_with("; waiting for at most 3600 s"), "{said}");
}

#[test]
fn what_cannot_be_run_has_the_exit_codes_of_a_shell() {
    let server = LeaseServer::start();
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    std::fs::set_permissions(&plain, PermissionsExt::from_mode(0o644)).unwrap();
    for (program, code) in [(plain.as_os_str(), 126), (OsStr::new("/nowhere/at-all"), 127)] {
        let mut command = fencegate();
        command.args(["run", "--resource", "job", "--leases", &server.url(), "--"]).arg(program);
        let (exit, _, stderr) = output(command);
        assert_eq!(exit, code, "{stderr}");
        assert!(stderr.starts_with("fencegate run: job: cannot run "), "{stderr}");
        assert!(server.lease("job").is_none());
    }
}

#[test]
fn unreachable_coordinator_and_wrong_usage_are_told_apart() {
    let mut server = LeaseServer::start();
    server.go_away();
    for on_held in ["skip", "wait", "fail"] {
        let (exit, _, stderr) = output(run(&server, &["--on-held", on_held], "echo ran"));
        assert_eq!(exit, 69);
        assert!(stderr.starts_with("fencegate run: job: the coordinator does not answer"));
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    for wrong in [
        ["--ttl", "100ms"],
        ["--ttl", "10"],
        ["--ttl", "61m"],
        ["--kill-after", "4s"],
        ["--wait", "1s"],
        ["--leases", "ftp://127.0.0.1"],
        ["--gateway", "http://127.0.0.1/x"],
        ["--resource", ""],
        ["--etcd", "x"],
    ] {
        let mut command = fencegate();
        command.arg("run");
        if wrong[0] != "--resource" {
            command.args(["--resource", "job"]);
        }
        let (exit, _, stderr) = {
            command.args(wrong).args(["--", "true"]);
            output(command)
        };
        assert_eq!(exit, 64, "{wrong:?}: {stderr}");
    }
}

#[test]
fn signals_are_passed_on_to_the_group_while_the_lease_is_renewed() {
    let server = LeaseServer::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    for (signal, code) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1)] {
        let _ = std::fs::remove_file(&file);
        // The command takes its time to end: longer than its lease would last unrenewed.
        let script = format!(
            "trap 'sleep 1.5; exit {code}' TERM INT HUP; echo $$ > {0}; while :; do sleep 0.01; done",
            file.display()
        );
        let child = run(&server, &["--ttl", "1s"], &script).spawn().unwrap();
        pids(&file, 1);
        kill(Pid::from_child(&child), signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
    }
}

#[test]
fn command_stops_and_goes_on_with_the_run_that_watches_over_it() {
    let server = LeaseServer::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let go = dir.path().join("go");
    // No child: a shell that waits for a stopped one to begin does not count as stopped itself.
    let script = format!(
        "echo $$ > {}; while [ ! -e {} ]; do :; done; exit 6",
        file.display(),
        go.display()
    );
    let child = run(&server, &["--ttl", "60s"], &script).spawn().unwrap();
    let (run, command) = (Pid::from_child(&child), pids(&file, 1)[0]);
    kill(run, Signal::TSTP);
    wait_until("both are stopped", || is_stopped(run) && is_stopped(command));
    std::fs::write(&go, "").unwrap();
    kill(run, Signal::CONT);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(6));
}

#[test]
fn signal_before_the_lease_is_acquired_ends_the_wait() {
    let server = LeaseServer::start();
    server.hold("job", Duration::from_secs(60));
    let child =
        run(&server, &["--on-held", "wait"], "true").stderr(Stdio::piped()).spawn().unwrap();
    // Its listeners for signals are there once it asks for the lease, but asking leaves no trace.
    let caught = format!("/proc/{}/status", child.id());
    wait_until("SIGTERM is caught", || {
        let status = std::fs::read_to_string(&caught).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() >> 14 & 1 == 1
    });
    kill(Pid::from_child(&child), Signal::TERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143));
}

#[test]
fn what_the_command_left_behind_is_dead_before_the_release() {
    let server = LeaseServer::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let script = format!(
        "(trap '' TERM HUP; sh -c 'echo $$ >> {0}; while :; do sleep 0.01; done') & \
         while [ ! -s {0} ]; do sleep 0.01; done; exit 5",
        file.display()
    );
    let alive_at_release = Arc::new(Mutex::new(None));
    let seen = alive_at_release.clone();
    server.book.lock().unwrap().on_release = Some(Box::new(move || {
        *seen.lock().unwrap() = Some(is_alive(pids(&file, 1)[0]));
    }));
    let (exit, _, _) = output(run(&server, &[], &script));
    assert_eq!(exit, 5);
    assert_eq!(*alive_at_release.lock().unwrap(), Some(false));
}

#[test]
fn signals_that_were_ignored_stay_ignored() {
    let server = LeaseServer::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let script = format!("echo $$ > {}; sleep 1; exit 4", file.display());
    let run = run(&server, &[], &script);
    let mut nohup = std::process::Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(run.get_program());
    let child = nohup.args(run.get_args()).spawn().unwrap();
    pids(&file, 1);
    kill(Pid::from_child(&child), Signal::HUP);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(4));
}
