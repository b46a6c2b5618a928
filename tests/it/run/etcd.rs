//! Leases from etcd itself.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::{fencegate, is_alive, output, pids, wait_until};
use crate::servers;

fn lease(endpoints: &str, arguments: &[&str]) -> (i32, Value, String) {
    let mut command = fencegate();
    command.arg("lease").args(arguments).args(["--etcd", endpoints]);
    let (exit, stdout, stderr) = output(command);
    (exit, serde_json::from_str(&stdout).unwrap_or_default(), stderr)
}

#[test]
fn verbs_work_on_etcd_as_on_the_lease_api() {
    let etcd = servers::etcd::Etcd::single();
    let at = etcd.endpoints().join(",");
    let name = "a/b";
    let acquire = ["acquire", "--resource", name, "--owner", "me", "--ttl", "60s"];
    let (exit, json, stderr) = lease(&at, &acquire);
    assert_eq!((exit, stderr.as_str()), (0, ""));
    let token = json["token"].as_str().unwrap().to_owned();
    let mine = ["--resource", name, "--owner", "me", "--token", &token];
    let (exit, json, _) = lease(&at, &["show", "--resource", name]);
    assert_eq!((exit, &json["owner"], &json["token"]), (0, &"me".into(), &token.clone().into()));
    let (exit, _, stderr) = lease(&at, &["acquire", "--resource", name, "--owner", "you"]);
    assert_eq!(exit, 75, "{stderr}");
    assert_eq!(lease(&at, &["list"]).1["leases"][0]["resource"], name);
    assert_eq!(lease(&at, &[&["renew"], &mine[..]].concat()).0, 0);
    // Another prefix is another world.
    assert_eq!(lease(&at, &["show", "--resource", name, "--prefix", "/other"]).0, 1);
    assert_eq!(lease(&at, &[&["release"], &mine[..]].concat()).0, 0);
    assert_eq!(lease(&at, &["show", "--resource", name]).0, 1);
    assert_eq!(lease(&at, &[&["renew"], &mine[..]].concat()).0, 76);
}

#[test]
fn a_command_runs_under_a_lease_from_etcd_and_is_ended_in_time_when_etcd_is_gone() {
    let mut etcd = servers::etcd::Etcd::single();
    let at = etcd.endpoints().join(",");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let script = format!("echo $FENCING_TOKEN; echo $$ >> {}; exec sleep 60", file.display());
    let mut command = fencegate();
    command.args(["run", "--resource", "job", "--etcd", &at, "--ttl", "3s"]);
    let child = command
        .args(["--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let job = pids(&file, 1)[0];
    let (_, holder, _) = lease(&at, &["show", "--resource", "job"]);
    etcd.kill(0);
    wait_until("the command is ended", || !is_alive(job));
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(76), "{ended:?}");
    let token = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(holder["token"].as_str(), Some(token.trim()));
}

#[test]
fn etcd_and_the_lease_api_are_not_given_together_and_mistakes_are_named() {
    let usage = |arguments: &[&str]| {
        let mut command = fencegate();
        command.args(["lease", "list"]).args(arguments);
        output(command)
    };
    for (arguments, text) in [
        (&["--etcd", "127.0.0.1:1", "--leases", "http://x"][..], "cannot be used with"),
        (&["--prefix", "/x"], "--etcd"),
        (&["--etcd", "127.0.0.1"], "is no host:port"),
        (&["--etcd", "127.0.0.1:1,"], "is no host:port"),
        (&["--etcd", "127.0.0.1:1", "--prefix", "/"], "--prefix is empty"),
    ] {
        let (exit, _, stderr) = usage(arguments);
        assert_eq!(exit, 64, "{stderr}");
        assert!(stderr.contains(text), "{stderr}");
    }
    let nobody = format!("127.0.0.1:{}", servers::free_port());
    let (exit, _, stderr) = usage(&["--etcd", &nobody]);
    assert_eq!(exit, 69, "{stderr}");
    assert!(stderr.contains("coordinator_unavailable"), "{stderr}");
    let waits = Duration::from_millis(300);
    let mut command = fencegate();
    command.args(["run", "--resource", "job", "--etcd", &nobody, "--on-held", "wait", "--wait"]);
    let (exit, _, stderr) = output({
        command.arg(format!("{}ms", waits.as_millis())).args(["--", "true"]);
        command
    });
    assert_eq!(exit, 69, "{stderr}");
    assert!(stderr.contains("does not answer"), "{stderr}");
}
