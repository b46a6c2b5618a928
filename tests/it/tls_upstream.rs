//! TLS to upstreams, with nginx and openssl at the other end.

use crate::support::certificates::{Authority, Pair};
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::http::{assert_problem, pattern};
use crate::support::nginx::Nginx;
use crate::support::wait_until;

/// nginx with a certificate, that wants to see one of `clients`.
fn nginx(own: &Pair, clients: Option<&Authority>, http2: bool) -> Nginx {
    let (cert, key) = (own.cert.display(), own.key.display());
    let mut more = format!("ssl_certificate {cert}; ssl_certificate_key {key};");
    if let Some(clients) = clients {
        let ca = clients.ca();
        let wants = format!(" ssl_client_certificate {}; ssl_verify_client on;", ca.display());
        more.push_str(&wants);
    }
    Nginx::listening(if http2 { "ssl http2" } else { "ssl" }, &more)
}

fn trusting(ca: &Authority, more: &str) -> String {
    format!("https\nca_file = \"{}\"\n{more}", ca.ca().display())
}

fn showing(client: &Pair) -> String {
    let (cert, key) = (client.cert.display(), client.key.display());
    format!("cert_file = \"{cert}\"\nkey_file = \"{key}\"\n")
}

#[test]
fn writes_reach_nginx_over_tls_with_a_client_certificate_and_the_fence_holds() {
    let (ca, clients) = (Authority::new(), Authority::new());
    for (http2, protocol) in [(false, "http1"), (true, "http2")] {
        let nginx = nginx(&ca.sign("api"), Some(&clients), http2);
        let more = format!("protocol = \"{protocol}\"\n{}", showing(&clients.sign("gateway")));
        let gateway = Gateway::listening(nginx.address, "", &trusting(&ca, &more), "");
        assert_eq!(gateway.put("/x", 2, "new").status, 201);
        assert_eq!(gateway.put("/x", 1, "late").code(), "stale_fencing_token");
        let large = String::from_utf8_lossy(&pattern(2_000_000)).into_owned();
        assert_eq!(gateway.put("/large", 1, &large).status, 201);
        let stored = nginx.stored();
        assert_eq!(stored.len(), 2, "{protocol}");
        assert!(stored.contains(&("/x".to_owned(), b"new".to_vec())));
        assert!(stored.contains(&("/large".to_owned(), large.into_bytes())));
    }
}

#[test]
fn an_upstream_that_is_not_who_it_should_be_gets_no_byte_of_a_request() {
    let (ca, other) = (Authority::new(), Authority::new());
    let nginx = nginx(&ca.sign("api"), None, false);
    for upstream in [
        trusting(&other, ""),
        trusting(&ca, "server_name = \"other.example\"\n"),
        trusting(&ca, "protocol = \"http2\"\n"),
        // No authority of the system has signed it.
        "https".to_owned(),
    ] {
        let gateway = Gateway::listening(nginx.address, "", &upstream, "");
        let answer = gateway.put("/x", 1, "a");
        assert_problem(&answer, 502, "upstream_unreachable", "not_forwarded");
    }
    assert!(nginx.stored().is_empty());
}

#[test]
fn an_upstream_without_tls_and_one_that_is_silent_are_unreachable_over_https() {
    let api = Downstream::start();
    let ca = Authority::new();
    let gateway =
        Gateway::listening(api.address, "", &trusting(&ca, "connect_timeout = \"500ms\"\n"), "");
    let answer = gateway.put("/x", 1, "a");
    assert_problem(&answer, 502, "upstream_unreachable", "not_forwarded");
}

#[test]
fn the_gateways_own_certificate_follows_its_files() {
    let (ca, clients) = (Authority::new(), Authority::new());
    let nginx = nginx(&ca.sign("api"), Some(&clients), false);
    // One of another authority, until it is renewed.
    let files = clients.dir.path().join("own");
    std::fs::create_dir(&files).expect("a writable directory");
    let pair = Pair { cert: files.join("tls.crt"), key: files.join("tls.key") };
    Authority::new().sign_into(&pair, "gateway");
    let gateway = Gateway::listening(nginx.address, "", &trusting(&ca, &showing(&pair)), "");
    assert_ne!(gateway.put("/x", 1, "a").status, 201);
    assert!(nginx.stored().is_empty());

    clients.sign_into(&pair, "gateway");
    let applied =
        "fencegate_certificate_reloads_total{certificate=\"upstream.api\",result=\"applied\"} 1";
    wait_until("it is read", || gateway.admin_text("/metrics").contains(applied));
    assert_eq!(gateway.put("/x", 1, "a").status, 201);
}
