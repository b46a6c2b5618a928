//! `fencegate run` with the real gateway, plain curl and nginx: a worker's whole way.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::json;

use crate::support::gateway::Gateway;
use crate::support::nginx::Nginx;
use crate::support::wait_until;

const FILE: &str = "/file";

/// `fencegate run OPTIONS -- sh -c SCRIPT` for the resource of [`FILE`]. The script has `$API`, and
/// `put CURL-ARGUMENTS`, which prints the status.
fn run(gateway: &Gateway, options: &[&str], script: &str) -> Command {
    let api = format!("http://{}", gateway.proxy);
    let put = "put() { curl -q -sS -m 30 -o /dev/null -w '%{http_code}\\n' -X PUT \"$@\"; }";
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencegate"));
    command
        .args(["run", "--resource", FILE, "--gateway", &api])
        .args(["--leases", &format!("http://{}", gateway.leases)])
        .args(options)
        .args(["--", "sh", "-c", &format!("{put}; {script}")])
        .env("API", api)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn ended(mut command: Command) -> (i32, String, String) {
    end_of(command.spawn().expect("the binary was built"))
}

fn end_of(child: Child) -> (i32, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().expect("our child");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("only text is printed");
    (status.code().expect("it is not killed"), text(stdout), text(stderr))
}

/// The process that wrote its number into the file.
fn pid_in(file: &Path) -> Pid {
    let read = || fs::read_to_string(file).unwrap_or_default();
    wait_until("the command has started", || read().ends_with('\n'));
    Pid::from_raw(read().trim().parse().expect("a number")).expect("not zero")
}

fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

/// The live lease of [`FILE`].
fn lease(gateway: &Gateway) -> Option<serde_json::Value> {
    let answer = gateway.lease_api("GET", FILE, "", &json!({}));
    (answer.status == 200).then(|| answer.json())
}

fn expires_at(lease: &serde_json::Value) -> jiff::Timestamp {
    lease["expires_at"].as_str().and_then(|at| at.parse().ok()).expect("a moment")
}

/// Ends the lease behind its holder's back.
fn release(gateway: &Gateway, lease: &serde_json::Value) {
    let text = |key: &str| lease[key].as_str().expect("a text").to_owned();
    let owner = percent_encoding::utf8_percent_encode(
        lease["owner"].as_str().expect("a text"),
        percent_encoding::NON_ALPHANUMERIC,
    );
    let rest = format!("?owner={owner}&token={}", text("token"));
    assert_eq!(gateway.lease_api("DELETE", FILE, &rest, &json!({})).status, 204);
}

/// Tokens of the writes that took effect, in order.
fn tokens(nginx: &Nginx) -> Vec<u64> {
    let log = nginx.timed();
    log.iter().filter(|line| line.status < 300).filter_map(|line| line.token).collect()
}

#[test]
fn held_lease_is_skipped_failed_or_waited_for() {
    let nginx = Nginx::start();
    let gateway = Gateway::guard(nginx.address);
    let other = gateway.acquire(FILE, "somebody", 60_000);
    let script = "echo ran; echo x | put -x $FENCING_PROXY --noproxy '' -T - $API/file";
    for (options, code) in [
        (&["--on-held", "skip"][..], 0),
        (&["--on-held", "fail"], 75),
        (&[], 75),
        (&["--on-held", "wait", "--wait", "300ms"], 75),
    ] {
        let (exit, stdout, stderr) = ended(run(&gateway, options, script));
        assert_eq!((exit, stdout.as_str()), (code, ""), "{options:?}: {stderr}");
        assert!(stderr.contains("held by \"somebody\""), "{options:?}: {stderr}");
    }
    assert_eq!(nginx.stored(), []);

    let waiting = run(&gateway, &["--on-held", "wait"], script).spawn().expect("it was built");
    release(&gateway, &lease(&gateway).expect("somebody's"));
    let (exit, stdout, stderr) = end_of(waiting);

    assert_eq!((exit, stdout.as_str()), (0, "ran\n201\n"));
    says_at_most_that_it_waits(&stderr);
    assert!(gateway.mark(FILE).is_some_and(|mark| mark > other));
    assert!(lease(&gateway).is_none(), "it is released");
}

#[test]
fn command_has_the_leases_token_and_resource_in_its_environment() {
    let nginx = Nginx::start();
    let gateway = Gateway::guard(nginx.address);
    let script = "echo $FENCING_TOKEN $FENCING_RESOURCE $FENCING_PROXY $MINE; \
                  curl -q -sS --noproxy '*' $LEASES/v1/leases/%2Ffile";
    let mut command = run(&gateway, &[], script);
    command.env("MINE", "untouched").env("LEASES", format!("http://{}", gateway.leases));

    let (exit, stdout, stderr) = ended(command);

    assert_eq!(exit, 0, "{stderr}");
    let (environment, lease) = stdout.split_once('\n').expect("two lines");
    let lease: serde_json::Value = serde_json::from_str(lease).expect("the lease");
    let words: Vec<&str> = environment.split(' ').collect();
    assert_eq!(words[0], lease["token"]);
    assert_eq!((words[1], words[3]), (FILE, "untouched"));
    assert!(words[2].starts_with("http://127.0.0.1:"), "{environment}");
}

#[test]
fn curl_gets_through_with_the_leases_token_and_never_with_a_forged_one() {
    let nginx = Nginx::start();
    let gateway = Gateway::guard(nginx.address);
    let script = "
        echo 1 | put --noproxy '' -x $FENCING_PROXY -T - $API/file
        echo 2 | put --noproxy '*' -T - $FENCING_PROXY/file
        echo 3 | put --noproxy '*' -H \"Fencing-Token: $FENCING_TOKEN\" -T - $API/file
        echo 4 | put --noproxy '' -x $FENCING_PROXY -H 'Fencing-Token: 99' -T - $API/file
        echo 5 | put --noproxy '' -x $FENCING_PROXY -H 'X-Fencing-Token: 99' \
            -H 'fencing-token: 98' -H 'Connection: Fencing-Token' -T - $API/file
        echo 6 | put --noproxy '*' -T - $API/file
        echo 7 | put --noproxy '*' -H 'Fencing-Token: 99' -T - $API/file
        echo 8 | put --noproxy '' -x $FENCING_PROXY -T - $API/other
        echo $FENCING_TOKEN";

    let (exit, stdout, stderr) = ended(run(&gateway, &[], script));

    assert_eq!((exit, stderr.as_str()), (0, ""));
    let said: Vec<u64> = stdout.lines().map(|line| line.parse().expect("a number")).collect();
    // Without a token, with one that nobody holds, and with the token of another resource.
    assert_eq!(said[..8], [201, 204, 204, 204, 204, 428, 403, 403]);
    assert_eq!(nginx.stored(), [(FILE.to_owned(), b"5\n".to_vec())]);
    wait_until("nginx has logged", || tokens(&nginx).len() >= 5);
    assert_eq!(tokens(&nginx), [said[8]; 5]);
}

#[test]
fn group_is_dead_before_the_ttl_is_over_when_the_lease_was_taken_over() {
    let nginx = Nginx::start();
    let gateway = Gateway::guard(nginx.address);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let pid = dir.path().join("pid");
    let script = format!(
        "trap '' TERM; echo $$ > {}; while :; do echo a | put --noproxy '' -x $FENCING_PROXY -T - \
         $API/file; done",
        pid.display()
    );
    let options = ["--ttl", "3s", "--kill-after", "300ms"];
    let child = run(&gateway, &options, &script).spawn().expect("it was built");
    let command = pid_in(&pid);
    wait_until("it has written", || !nginx.stored().is_empty());
    let held = lease(&gateway).expect("the run's");
    release(&gateway, &held);
    let b = gateway.acquire(FILE, "b", 60_000);
    assert_eq!(gateway.put(FILE, b, "b").status, 204);

    wait_until("the command is dead", || !is_alive(command));

    assert!(jiff::Timestamp::now() < expires_at(&held), "not before its TTL was over");
    let (exit, _, stderr) = end_of(child);
    assert_eq!(exit, 76, "{stderr}");
    assert!(stderr.contains("lease lost: the coordinator ended it"), "{stderr}");
    assert_eq!(nginx.stored(), [(FILE.to_owned(), b"b".to_vec())]);
    assert_eq!(tokens(&nginx).last(), Some(&b));
    assert_eq!(lease(&gateway).expect("b's")["owner"], "b");
}

#[test]
fn late_writes_of_a_command_whose_run_was_killed_are_refused_after_the_takeover() {
    let nginx = Nginx::start();
    let gateway = Gateway::guard(nginx.address);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (pid, said) = (dir.path().join("pid"), dir.path().join("said"));
    let script = format!(
        "echo $$ > {}; while :; do echo a | put --noproxy '*' -H \"Fencing-Token: \
         $FENCING_TOKEN\" -T - $API/file >> {}; done",
        pid.display(),
        said.display()
    );
    let mut child = run(&gateway, &["--ttl", "1s"], &script).spawn().expect("it was built");
    let command = pid_in(&pid);
    let last_said =
        || fs::read_to_string(&said).unwrap_or_default().lines().last().map(str::to_owned);
    wait_until("it has written", || last_said().as_deref() == Some("204"));

    kill_process(Pid::from_child(&child), Signal::KILL).expect("it runs");
    child.wait().expect("our child");
    wait_until("the lease is over", || lease(&gateway).is_none());
    let b = gateway.acquire(FILE, "b", 60_000);
    assert_eq!(gateway.put(FILE, b, "b").status, 204);
    wait_until("the command hears of it", || last_said().as_deref() == Some("412"));

    assert!(is_alive(command), "nobody watches over it");
    kill_process_group(command, Signal::KILL).expect("it is alive");
    assert_eq!(nginx.stored(), [(FILE.to_owned(), b"b".to_vec())]);
    wait_until("nginx has logged", || tokens(&nginx).last() == Some(&b));
}

#[test]
fn run_and_its_lease_outlive_the_gateway_being_stopped_and_being_killed() {
    let nginx = Nginx::start();
    let mut gateway = Gateway::guard(nginx.address);
    gateway.keep_ports();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (pid, go) = (dir.path().join("pid"), dir.path().join("go"));
    let put = "put --noproxy '' -x $FENCING_PROXY -T - $API/file";
    let script = format!(
        "echo 1 | {put}; echo $$ > {}; while [ ! -e {} ]; do sleep 0.05; done; echo 2 | {put}; exit 5",
        pid.display(),
        go.display()
    );
    let child = run(&gateway, &["--ttl", "9s"], &script).spawn().expect("it was built");
    pid_in(&pid);
    let before = lease(&gateway).expect("the run's");

    assert!(gateway.stop().success());
    gateway.start();
    gateway.kill();
    gateway.start();
    let is_renewed = |now: &serde_json::Value| expires_at(now) > expires_at(&before);
    wait_until("it is renewed", || lease(&gateway).as_ref().is_some_and(is_renewed));
    fs::write(go, "").expect("a writable directory");
    let (exit, stdout, stderr) = end_of(child);

    assert_eq!((exit, stdout.as_str(), stderr.as_str()), (5, "201\n204\n", ""));
    assert_eq!(nginx.stored(), [(FILE.to_owned(), b"2\n".to_vec())]);
    let token: u64 = before["token"].as_str().and_then(|token| token.parse().ok()).expect("one");
    wait_until("nginx has logged", || tokens(&nginx) == [token, token]);
    let next = gateway.acquire(FILE, "next", 60_000);
    assert!(next > token);
}

#[test]
fn run_that_waits_for_a_lease_goes_on_waiting_when_the_gateway_is_restarted() {
    let nginx = Nginx::start();
    let mut gateway = Gateway::guard(nginx.address);
    gateway.keep_ports();
    gateway.acquire(FILE, "somebody", 60_000);
    let child = run(&gateway, &["--on-held", "wait", "--wait", "60s"], "echo ran")
        .spawn()
        .expect("it was built");
    wait_until("it is connected to the lease API", || is_connected(&child, gateway.leases.port()));

    gateway.kill();
    wait_until("it has noticed", || !is_connected(&child, gateway.leases.port()));
    gateway.start();
    release(&gateway, &lease(&gateway).expect("somebody's, still"));

    let (exit, stdout, stderr) = end_of(child);
    assert_eq!((exit, stdout.as_str()), (0, "ran\n"));
    says_at_most_that_it_waits(&stderr);
}

/// The lease may be free before it could be seen who has it.
#[track_caller]
fn says_at_most_that_it_waits(stderr: &str) {
    let is_told = |line: &str| line.contains("held by \"somebody\"") && line.contains("; waiting");
    assert!(stderr.lines().count() <= 1 && stderr.lines().all(is_told), "{stderr}");
}

/// Whether a process has an established connection to the port.
fn is_connected(child: &Child, port: u16) -> bool {
    let sockets = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
    let links = sockets.filter_map(|socket| fs::read_link(socket.path()).ok());
    let links: Vec<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let table = fs::read_to_string("/proc/net/tcp").expect("Linux");
    table.lines().skip(1).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_there = words[2].ends_with(&format!(":{port:04X}")) && words[3] == "01";
        is_there && links.contains(&format!("socket:[{}]", words[9]))
    })
}
