//! Mistakes in configuration and addresses, as a person meets them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use crate::support::command::{Ended, fencegate, run};
use crate::support::downstream::Downstream;
use crate::support::http::send;

/// Runs the binary in a directory that has this `fencegate.toml`.
fn with_file(text: &str, args: &[&str]) -> Ended {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("fencegate.toml"), text).expect("a writable directory");
    run(fencegate(dir.path(), args))
}

const MISTAKEN: &str = r#"[listen]
proxy = "here"
[store]
uri = "sqlite:x.db"
[[upstream]]
name = "api"
url = "http://127.0.0.1:9"
settle = "3 parsecs"
[[route]]
path = "/{a}/{a}"
mode = "enforced"
upstream = "ledger"
"#;

#[track_caller]
fn reports_all_at_once(ended: &Ended) {
    assert_eq!(ended.code, Some(64), "{ended:?}");
    for (line, word) in
        [(2, "here"), (4, "uri"), (8, "parsecs"), (10, "{a}"), (11, "enforced"), (12, "ledger")]
    {
        let place = format!(":{line}:");
        let is_told = ended.stderr.lines().any(|told| {
            (told.contains(&place) || told.contains(&format!("line {line}"))) && told.contains(word)
        });
        assert!(is_told, "nothing about line {line} and {word} in:\n{}", ended.stderr);
    }
}

#[test]
fn every_mistake_of_a_configuration_is_reported_at_once_with_its_line() {
    reports_all_at_once(&with_file(MISTAKEN, &["serve", "--config", "fencegate.toml"]));
    reports_all_at_once(&with_file(MISTAKEN, &["config", "check", "--config", "fencegate.toml"]));
}

#[test]
fn a_configuration_that_is_right_is_printed_by_the_check() {
    let ended = with_file(
        "[[upstream]]\nurl = \"http://127.0.0.1:9\"\n[[route]]\npath = \"/{*rest}\"\n",
        &["config", "check", "--config", "fencegate.toml"],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("settle = \"30s\""), "{ended:?}");
}

#[test]
fn a_configuration_that_is_not_there_is_told() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let ended = run(fencegate(dir.path(), &["serve", "--config", "nowhere.toml"]));
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.stderr.contains("nowhere.toml"), "{ended:?}");
}

#[test]
fn a_port_in_use_is_told_with_the_key_that_sets_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("a bound socket").to_string();
    for (flag, key) in
        [("--listen", "listen.proxy"), ("--leases", "listen.leases"), ("--admin", "listen.admin")]
    {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut args = vec!["serve", "--upstream", "http://127.0.0.1:9"];
        for free in ["--listen", "--leases", "--admin"] {
            args.extend([free, if free == flag { &taken } else { "127.0.0.1:0" }]);
        }
        let ended = run(fencegate(dir.path(), &args));
        assert_eq!(ended.code, Some(69), "{ended:?}");
        for word in [key, &taken, "another process listens there", "choose another port"] {
            assert!(ended.stderr.contains(word), "no {word:?} in {ended:?}");
        }
    }
}

#[test]
fn what_is_logged_is_checked_by_serve_and_by_the_check() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for verb in [&["serve"][..], &["config", "check"]] {
        let args = [verb, &["--upstream", "http://127.0.0.1:9"]].concat();
        for (value, word) in [("", "empty"), ("loud", "none of the levels")] {
            let mut command = fencegate(dir.path(), &args);
            command.env("FENCEGATE_LOG", value);
            let ended = run(command);
            assert_eq!(ended.code, Some(64), "{ended:?}");
            assert!(ended.stderr.starts_with("FENCEGATE_LOG: "), "{ended:?}");
            assert!(ended.stderr.contains(word), "{ended:?}");
        }
        let ended = run(fencegate(dir.path(), &[&args[..], &["--log", "loud"]].concat()));
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.stderr.starts_with("--log: "), "{ended:?}");
    }
}

#[test]
fn the_version_is_the_programs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let ended = run(fencegate(dir.path(), &["--version"]));
    let expected = concat!("fencegate ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), expected));
    let ended = run(fencegate(dir.path(), &["serve", "--version"]));
    assert_eq!(ended.code, Some(64), "{ended:?}");
}

#[test]
fn serve_is_configured_by_the_environment_alone() {
    let api = Downstream::start();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut command = fencegate(dir.path(), &["serve"]);
    for listener in ["PROXY", "LEASES", "ADMIN"] {
        command.env(format!("FENCEGATE_LISTEN__{listener}"), "127.0.0.1:0");
    }
    let child = command
        .env("FENCEGATE_UPSTREAM__0__URL", format!("http://{}", api.address))
        .env("FENCEGATE_ROUTE__0__TOKENS", "ordered")
        .env("FENCEGATE_STORE__URL", "sqlite:by-environment.db")
        .env("FENCEGATE_LOG", "info")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it was built");
    let mut child = Ends(child);
    let log = BufReader::new(child.0.stderr.take().expect("piped"));
    let mut lines = log.lines().map_while(Result::ok);
    let listening = lines.find(|line| line.contains("\"listening\"")).expect("it listens");
    let listening: serde_json::Value = serde_json::from_str(&listening).expect("JSON");
    let proxy = listening["proxy"].as_str().and_then(|at| at.parse().ok()).expect("an address");

    assert_eq!(send(proxy, "PUT", "/x", &[("Fencing-Token", "3")], b"x").status, 200);
    assert_eq!(send(proxy, "PUT", "/x", &[("Fencing-Token", "2")], b"x").status, 412);

    assert_eq!(api.tokens("/x"), [3]);
    assert!(dir.path().join("by-environment.db").exists());
}

/// Ends the process when the test does, however that is.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
