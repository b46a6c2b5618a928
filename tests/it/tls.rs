//! TLS on the listeners, with curl and openssl as clients.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::support::certificates::{Authority, Pair};
use crate::support::command::run;
use crate::support::curl::{Curled, curl};
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::Connection;
use crate::support::wait_until;

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("a path of a test")
}

/// A PUT over TLS with the authority's certificate as the only trusted one.
fn put(gateway: &Gateway, ca: &Authority, token: &str, more: &[&str]) -> Curled {
    let url = format!("https://localhost:{}/x", gateway.proxy.port());
    let token = format!("Fencing-Token: {token}");
    let ca = ca.ca();
    let args = ["--cacert", text(&ca), "-X", "PUT", "-d", "body", "-H", &token, &url];
    curl(&[&args, more].concat())
}

fn openssl(gateway: &Gateway, args: &[&str]) -> String {
    let mut command = Command::new("openssl");
    let address = format!("127.0.0.1:{}", gateway.proxy.port());
    command.args(["s_client", "-connect", &address]).args(args);
    let ended = run(command);
    format!("{}{}", ended.stdout, ended.stderr)
}

#[test]
fn the_fence_holds_over_tls_with_both_versions_of_it_and_of_http() {
    let api = Downstream::start();
    let ca = Authority::new();
    let gateway = Gateway::listening(api.address, &ca.sign("gateway").listen("proxy"), "http", "");
    for (nth, args) in [
        ["--http1.1", "--tlsv1.3"],
        ["--http1.1", "--tls-max=1.2"],
        ["--http2", "--tlsv1.3"],
        ["--http2", "--tls-max=1.2"],
    ]
    .iter()
    .enumerate()
    {
        let args: Vec<&str> = args.iter().flat_map(|arg| arg.split('=')).collect();
        let token = (nth + 2).to_string();
        let answer = put(&gateway, &ca, &token, &args);
        let version = if args[0] == "--http2" { "2" } else { "1.1" };
        assert_eq!((answer.status, answer.version.as_str()), (200, version), "{answer:?}");
        let stale = put(&gateway, &ca, "1", &args);
        let expected = (412, "stale_fencing_token".to_owned(), "not_forwarded".to_owned());
        assert_eq!(stale.problem(), expected);
    }
    assert_eq!(api.tokens("/x"), [2, 3, 4, 5]);
    assert!(api.seen().iter().all(|seen| seen.body == b"body"));
}

#[test]
fn old_versions_of_tls_and_plain_text_are_refused() {
    let api = Downstream::start();
    let ca = Authority::new();
    let gateway = Gateway::listening(api.address, &ca.sign("gateway").listen("proxy"), "http", "");
    let shown = openssl(&gateway, &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"]);
    assert!(shown.contains("Cipher is (NONE)"), "{shown}");
    let mut plain = Connection::open(gateway.proxy);
    plain.write("PUT /x HTTP/1.1\r\nHost: a\r\nFencing-Token: 1\r\nContent-Length: 0\r\n\r\n");
    assert!(plain.try_read().is_err(), "no answer to plain text");
    assert_eq!(api.seen().len(), 0);
    let failed = "fencegate_tls_handshakes_failed_total{listener=\"proxy\"} 2";
    wait_until("both were counted", || gateway.admin_text("/metrics").contains(failed));
}

#[test]
fn a_client_that_never_finishes_its_handshake_is_sent_away_and_others_are_served() {
    let api = Downstream::start();
    let ca = Authority::new();
    let limits = "[limits]\nhandshake_timeout = \"1s\"\nclient_connections = 4\n";
    let gateway =
        Gateway::listening(api.address, &ca.sign("gateway").listen("proxy"), "http", limits);
    let mut silent: Vec<_> = (0..4).map(|_| Connection::open(gateway.proxy)).collect();
    // The beginning of a ClientHello.
    silent[0].write([0x16, 3, 1, 2, 0, 1]);
    let others = ["--interface", "127.0.0.8"];
    assert_eq!(put(&gateway, &ca, "1", &others).status, 200, "a client of another machine");
    let mut one_too_many = Connection::open(gateway.proxy);
    assert!(one_too_many.is_closed_by_peer());
    let hits = "fencegate_limit_hits_total{limit=\"limits.client_connections\"} 1";
    assert!(gateway.admin_text("/metrics").contains(hits));
    for client in &mut silent {
        assert!(client.is_closed_by_peer());
    }
    wait_until("their places are free", || put(&gateway, &ca, "1", &[]).status == 200);
}

fn with_clients(listener: &str, clients: &Authority, how: &str) -> String {
    format!(
        "{listener}_client_ca_file = \"{}\"\n{listener}_client_cert = \"{how}\"\n",
        clients.ca().display()
    )
}

fn shown(client: &Pair) -> [&str; 4] {
    ["--cert", text(&client.cert), "--key", text(&client.key)]
}

#[test]
fn required_client_certificates_keep_out_those_without_and_those_of_others() {
    let api = Downstream::start();
    let (ca, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let (known, unknown) = (clients.sign("worker"), others.sign("worker"));
    let own = ca.sign("gateway").listen("proxy");
    let listen = format!("{own}{}", with_clients("proxy", &clients, "required"));
    let gateway = Gateway::listening(api.address, &listen, "http", "");

    assert_eq!(put(&gateway, &ca, "1", &[]).status, 0);
    assert_eq!(put(&gateway, &ca, "1", &shown(&unknown)).status, 0);
    assert_eq!(api.seen().len(), 0);
    assert_eq!(put(&gateway, &ca, "1", &shown(&known)).status, 200);

    let listen = format!("{own}{}", with_clients("proxy", &clients, "optional"));
    let gateway = Gateway::listening(api.address, &listen, "http", "");
    assert_eq!(put(&gateway, &ca, "1", &[]).status, 200);
    assert_eq!(
        put(&gateway, &ca, "1", &shown(&unknown)).status,
        0,
        "a false one is worse than none"
    );
    assert_eq!(put(&gateway, &ca, "1", &shown(&known)).status, 200);
}

#[test]
fn the_lease_and_admin_listeners_have_tls_of_their_own() {
    let api = Downstream::start();
    let (ca, clients) = (Authority::new(), Authority::new());
    let own = ca.sign("gateway");
    let listen = format!(
        "{}{}{}",
        own.listen("leases"),
        own.listen("admin"),
        with_clients("admin", &clients, "required")
    );
    let gateway = Gateway::listening(api.address, &listen, "http", "");
    let (ca, operator) = (ca.ca(), clients.sign("operator"));
    let leases = format!("https://localhost:{}/v1/leases/a", gateway.leases.port());
    let taken = curl(&["--cacert", text(&ca), "-d", "{\"owner\":\"a\",\"ttl_ms\":60000}", &leases]);
    assert_eq!((taken.status, taken.version.as_str()), (201, "1.1"), "{taken:?}");
    let metrics = format!("https://localhost:{}/metrics", gateway.admin.port());
    assert_eq!(curl(&["--cacert", text(&ca), &metrics]).status, 0);
    let told = curl(&[&["--cacert", text(&ca), &metrics][..], &shown(&operator)].concat());
    assert_eq!(told.status, 200);
    assert!(told.body.contains("fencegate_tls_handshakes_failed_total{listener=\"admin\"} 1"));
    for name in ["listen.leases", "listen.admin"] {
        let gauge =
            format!("fencegate_certificate_expiry_timestamp_seconds{{certificate=\"{name}\"}}");
        assert!(told.body.contains(&gauge), "{name}");
    }
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart_and_a_bad_pair_is_refused_whole() {
    let api = Downstream::start();
    let ca = Authority::new();
    let pair = ca.sign("gateway");
    let gateway = Gateway::listening(api.address, &pair.listen("proxy"), "http", "");
    let subject = || openssl(&gateway, &["-brief"]);
    assert!(subject().contains("CN = gateway"), "{}", subject());

    fs::write(&pair.key, "no key").expect("a writable directory");
    let refused =
        "fencegate_certificate_reloads_total{certificate=\"listen.proxy\",result=\"refused\"} 1";
    wait_until("the bad pair is seen", || gateway.admin_text("/metrics").contains(refused));
    wait_until("the log says so", || {
        gateway.log_text().contains("changed certificate files were refused")
    });
    assert!(subject().contains("CN = gateway"), "the old one stays");

    ca.sign_into(&pair, "renewed");
    wait_until("the new one is used", || subject().contains("CN = renewed"));
    assert_eq!(put(&gateway, &ca, "1", &[]).status, 200);
    assert!(gateway.admin_text("/metrics").contains("result=\"applied\"} 1"));
}

#[test]
fn half_a_tls_record_at_shutdown_does_not_keep_the_gateway() {
    let api = Downstream::start();
    let ca = Authority::new();
    let mut gateway =
        Gateway::listening(api.address, &ca.sign("gateway").listen("proxy"), "http", "");
    let mut silent = TcpStream::connect(gateway.proxy).expect("it listens");
    silent.write_all(&[0x16, 3, 1]).expect("it reads");
    wait_until("it is counted", || {
        gateway.admin_text("/metrics").contains("fencegate_connections 1")
    });
    assert!(gateway.stop().success());
}

#[test]
fn clients_that_ask_for_much_and_read_nothing_are_let_go() {
    let api = Downstream::start();
    let body = "a".repeat(30_000);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    api.behave("/x", Behaviour::Say(format!("{head}{body}").into_bytes(), false));
    let ca = Authority::new();
    let limits = "[limits]\nbody_timeout = \"500ms\"\nidle_timeout = \"1s\"\n";
    let listen = ca.sign("gateway").listen("proxy");
    let gateway = Gateway::listening(api.address, &listen, "http", limits);
    let asked = "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(300);
    let open = || {
        let metrics = gateway.admin_text("/metrics");
        let open = metrics.lines().find_map(|line| line.strip_prefix("fencegate_connections "));
        open.and_then(|open| open.parse::<f64>().ok()).expect("it is counted")
    };
    // In which buffer the last answer gets stuck differs from one to the next.
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let address = format!("127.0.0.1:{}", gateway.proxy.port());
            let mut command = Command::new("openssl");
            command.args(["s_client", "-quiet", "-connect", &address]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut client = command.spawn().expect("openssl");
            client.stdin.as_mut().expect("a pipe").write_all(asked.as_bytes()).expect("it reads");
            client
        })
        .collect();
    wait_until("they have asked", || api.seen().len() > 20);
    wait_until("they are gone", || open() == 0.0);
    for mut client in clients {
        client.kill().expect("a child");
        client.wait().expect("a child");
    }
}
