//! Where the listeners may be, and what is open to all.

use std::fs;
use std::net::SocketAddr;

use super::{Guarded, entry, root, token_of};
use crate::support::command::{fencegate, run};
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, assert_problem, exchange, send};

fn with_host(to: SocketAddr, host: &str, method: &str, target: &str, fields: &str) -> Answer {
    let body = "{\"owner\":\"page\"}";
    exchange(
        to,
        format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    )
}

#[test]
fn without_credentials_the_listeners_are_on_loopback_or_the_start_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (flag, name) in [("--leases", "listen.leases"), ("--admin", "listen.admin")] {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
            let args = ["serve", "--upstream", "http://127.0.0.1:9", flag, address];
            let ended = run(fencegate(directory.path(), &args));
            assert_eq!(ended.code, Some(64), "{ended:?}");
            assert!(
                ended.stderr.contains(name)
                    && ended.stderr.contains("not loopback")
                    && ended.stderr.contains("access.credentials"),
                "{ended:?}"
            );
            assert!(!directory.path().join("fencegate.db").exists());
        }
    }
}

#[test]
fn with_credentials_they_may_be_anywhere() {
    let api = Downstream::start();
    let mut guarded = Guarded::start(api.address, &root(), "");
    guarded.gateway.stop();
    guarded.gateway.listen_everywhere();
    guarded.gateway.start();
    let port = guarded.gateway.leases.port();
    assert!(guarded.gateway.leases.ip().is_unspecified());
    let there = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(with_host(there, "gateway.internal", "GET", "/v1/leases", "").status, 401);
    let known = format!("Authorization: Bearer {}\r\n", token_of("root"));
    assert_eq!(with_host(there, "gateway.internal", "GET", "/v1/leases", &known).status, 200);
}

#[test]
fn no_page_in_a_browser_on_this_machine_gets_a_lease_or_raises_a_mark() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let (leases, admin) = (gateway.leases, gateway.admin);
    let own = |at: SocketAddr| at.to_string();
    for (host, fields) in [
        (own(leases), "Origin: http://evil.example\r\n"),
        (own(leases), "Origin: null\r\nSec-Fetch-Site: cross-site\r\n"),
        (own(leases), "Sec-Fetch-Site: cross-site\r\n"),
        (own(leases), "Sec-Fetch-Site: same-site\r\n"),
        (format!("evil.example:{}", leases.port()), ""),
        ("127.0.0.1.evil.example".to_owned(), ""),
    ] {
        let answer = with_host(leases, &host, "POST", "/v1/leases/r", fields);
        assert_problem(&answer, 403, "forbidden", "not_forwarded");
        let answer = with_host(leases, &host, "GET", "/v1/leases", fields);
        assert_problem(&answer, 403, "forbidden", "not_forwarded");
        let answer = with_host(admin, &host, "POST", "/v1/fences/r", fields);
        assert_problem(&answer, 403, "forbidden", "not_forwarded");
        let answer = with_host(admin, &host, "GET", "/metrics", fields);
        assert_problem(&answer, 403, "forbidden", "not_forwarded");
    }
    assert_eq!((gateway.holder("r"), gateway.mark("r")), (None, None));
    // Programs, and a person who types the address into a browser.
    for (host, fields) in [
        (own(leases), ""),
        ("localhost".to_owned(), "Sec-Fetch-Site: none\r\n"),
        ("[::1]".into(), ""),
    ] {
        assert_eq!(with_host(leases, &host, "POST", "/v1/leases/r", fields).status, 201);
        assert_eq!(with_host(admin, &host, "GET", "/metrics", fields).status, 200);
    }
}

#[test]
fn probes_are_open_and_metrics_are_if_the_configuration_says_so() {
    let api = Downstream::start();
    let scraper = entry("scraper", "may = [\"admin.metrics\"]");
    for (keys, without, with) in [
        ("", 401, 200),
        ("metrics = \"credential\"\n", 401, 200),
        ("metrics = \"open\"\n", 200, 200),
    ] {
        let guarded = Guarded::start(api.address, &scraper, keys);
        let admin = guarded.gateway.admin;
        for probe in ["/livez", "/readyz"] {
            assert_eq!(send(admin, "GET", probe, &[], b"").status, 200);
            assert_eq!(with_host(admin, "10.1.2.3:9090", "GET", probe, "").status, 200);
        }
        assert_eq!(send(admin, "GET", "/metrics", &[], b"").status, without, "{keys}");
        assert_eq!(guarded.admin("scraper", "GET", "/metrics", "").status, with, "{keys}");
        assert_eq!(send(admin, "GET", "/v1/fences", &[], b"").status, 401);
        assert_eq!(send(guarded.gateway.leases, "GET", "/openapi.json", &[], b"").status, 200);
    }
}

#[test]
fn a_bad_credentials_file_is_refused_at_the_start_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let secret = token_of("ann");
    fs::write(
        directory.path().join("credentials.toml"),
        format!("[[credential]]\nname = \"ann\"\nsha256 = \"{secret}\"\nmay = \"lease.read\"\n"),
    )
    .unwrap();
    let mut command =
        fencegate(directory.path(), &["config", "check", "--upstream", "http://127.0.0.1:9"]);
    command.env("FENCEGATE_ACCESS__CREDENTIALS", "credentials.toml");
    let ended = run(command);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.stderr.contains("line 3: sha256 is 64 hexadecimal digits"), "{ended:?}");
    assert!(!ended.stderr.contains(&secret), "{ended:?}");
}
