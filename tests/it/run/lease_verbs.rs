//! `fencegate lease …`

use std::time::Duration;

use serde_json::Value;

use super::{LeaseServer, fencegate, output};

fn lease(server: &LeaseServer, arguments: &[&str]) -> (i32, Value, String) {
    let mut command = fencegate();
    command.arg("lease").args(arguments).env("FENCEGATE_LEASES", server.url());
    let (exit, stdout, stderr) = output(command);
    (exit, serde_json::from_str(&stdout).unwrap_or_default(), stderr)
}

#[test]
fn lease_is_acquired_shown_renewed_listed_and_released() {
    let server = LeaseServer::start();
    let name = "a/b ?#%é";
    let mine = ["--resource", name, "--owner", "me & you", "--token", "1"];
    let (exit, json, stderr) =
        lease(&server, &["acquire", "--resource", name, "--owner", "me & you", "--ttl", "60s"]);
    assert_eq!((exit, stderr.as_str()), (0, ""));
    assert_eq!((&json["resource"], &json["token"]), (&name.into(), &"1".into()));
    assert_eq!(json["ttl_ms"], 60_000);
    assert_eq!(lease(&server, &["show", "--resource", name]).1["owner"], "me & you");
    assert_eq!(lease(&server, &["list"]).1["leases"][0]["resource"], name);
    assert_eq!(lease(&server, &[&["renew"], &mine[..]].concat()).0, 0);
    let (exit, json, _) = lease(&server, &[&["release"], &mine[..]].concat());
    assert_eq!((exit, &json["released"]), (0, &true.into()));
    let (exit, _, stderr) = lease(&server, &["show", "--resource", name]);
    assert_eq!(exit, 1);
    assert!(stderr.starts_with("fencegate lease: lease_not_found: "), "{stderr}");
    assert_eq!(lease(&server, &[&["renew"], &mine[..]].concat()).0, 76);
    assert_eq!(lease(&server, &[&["release"], &mine[..]].concat()).0, 1);
}

#[test]
fn refusals_have_exit_codes_of_their_own_and_one_line() {
    let mut server = LeaseServer::start();
    server.hold("job", Duration::from_secs(60));
    let mine = ["--resource", "job", "--owner", "me", "--token", "1"];
    let expect = |server: &LeaseServer, arguments: &[&str], code: i32, text: &str| {
        let (exit, _, stderr) = lease(server, arguments);
        assert_eq!(exit, code, "{stderr}");
        assert!(stderr.starts_with(&format!("fencegate lease: {text}")), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    };
    expect(&server, &["acquire", "--resource", "job"], 75, "lease_held: ");
    expect(&server, &[&["renew"], &mine[..]].concat(), 76, "lease_lost: ");
    expect(&server, &[&["release"], &mine[..]].concat(), 76, "owner_mismatch: ");
    expect(&server, &["show", "--resource", ".."], 69, "unresolvable_resource: ");
    expect(&server, &["list", "--leases", "ftp://x"], 64, "\"ftp://x\" begins with neither");
    server.go_away();
    expect(&server, &["list"], 69, "coordinator_unavailable: ");
}
