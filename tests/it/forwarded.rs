//! Who the client is: PROXY protocol headers, and what upstreams are told.

use crate::support::downstream::{Downstream, Seen};
use crate::support::gateway::{Gateway, TIGHT};
use crate::support::http::Connection;

const FIELDS: [&str; 4] = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];

/// What a request with these fields comes to the API with.
fn told(gateway: &Gateway, api: &Downstream, before: &[u8], fields: &str) -> Seen {
    let mut client = Connection::open(gateway.proxy);
    client.write(before);
    let head = "PUT /x HTTP/1.1\r\nHost: api.example\r\nFencing-Token: 1\r\n";
    client.write(format!("{head}{fields}Content-Length: 0\r\n\r\n"));
    assert_eq!(client.read().status, 200);
    api.seen().pop().expect("it was forwarded")
}

const FORGED: &str = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n\
                      X-Forwarded-Host: elsewhere\r\nForwarded: for=203.0.113.9\r\n\
                      X-Forwarded-Prefix: /admin\r\nX-Real-IP: 203.0.113.9\r\n";

/// CVE-2022-31813 and CVE-2024-45410 are of the last kind.
#[test]
fn a_clients_own_word_is_dropped_and_the_gateways_is_told() {
    let api = Downstream::start();
    let silent = Gateway::listening(api.address, "", "http", "");
    let seen = told(&silent, &api, b"", FORGED);
    let all = FIELDS.iter().chain(&["x-forwarded-prefix", "x-real-ip"]);
    for field in all {
        assert_eq!(seen.header(field), None, "{field}");
    }

    let gateway = Gateway::listening(api.address, "forwarded = \"x-forwarded\"\n", "http", "");
    for fields in ["", FORGED] {
        let seen = told(&gateway, &api, b"", fields);
        let expected = [Some("127.0.0.1"), Some("http"), Some("api.example"), None];
        assert_eq!(FIELDS.map(|field| seen.header(field)), expected, "{fields}");
    }
    let gateway = Gateway::listening(api.address, "forwarded = \"forwarded\"\n", "http", "");
    let seen = told(&gateway, &api, b"", FORGED);
    let expected = "for=127.0.0.1;proto=http;host=\"api.example\"";
    assert_eq!(seen.header("forwarded"), Some(expected));
    assert_eq!(seen.header("x-forwarded-for"), None);
}

#[test]
fn a_trusted_proxys_word_is_passed_on_with_the_gateways_behind_it() {
    let api = Downstream::start();
    let listen = "trusted_proxies = [\"127.0.0.0/8\"]\nforwarded = \"x-forwarded\"\n";
    let gateway = Gateway::listening(api.address, listen, "http", "");
    let seen = told(&gateway, &api, b"", FORGED);
    let expected = ["203.0.113.9, 127.0.0.1", "https", "elsewhere", "for=203.0.113.9"];
    assert_eq!(FIELDS.map(|field| seen.header(field).unwrap_or_default()), expected);
    assert_eq!(seen.header("x-real-ip"), Some("203.0.113.9"));
}

/// Version 2 (haproxy's proxy-protocol.txt §2.2): a TCP connection from 198.51.100.7 port 4.
fn version_2(command: u8) -> Vec<u8> {
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    let addresses = [198, 51, 100, 7, 127, 0, 0, 1, 0, 4, 0, 80];
    [&signature[..], &[0x20 | command, 0x11, 0, 12], &addresses].concat()
}

#[test]
fn a_proxy_protocol_header_of_a_balancer_says_who_the_client_is() {
    let api = Downstream::start();
    let listen = "proxy_protocol_from = [\"127.0.0.1\"]\nforwarded = \"x-forwarded\"\n";
    let gateway = Gateway::listening(api.address, listen, "http", TIGHT);
    let version_1 = b"PROXY TCP6 2001:db8::7 ::1 4 80\r\n".to_vec();
    for (header, client) in [
        (version_1, "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (version_2(1), "198.51.100.7"),
        // LOCAL: the balancer itself.
        (version_2(0), "127.0.0.1"),
    ] {
        let seen = told(&gateway, &api, &header, "");
        assert_eq!(seen.header("x-forwarded-for"), Some(client));
    }
    let before = api.seen().len();
    for not_one in ["PUT /x HTTP/1.1\r\nHost: a\r\n\r\n", "PROXY TCP4 a b 1 2\r\n", "PROXY TCP4 "] {
        let mut client = Connection::open(gateway.proxy);
        client.write(not_one);
        let _ = client.0.shutdown(std::net::Shutdown::Write);
        assert!(client.is_closed_by_peer(), "{not_one}");
    }
    assert_eq!(api.seen().len(), before);
}

#[test]
fn a_proxy_protocol_header_has_to_come_in_time_and_only_from_balancers() {
    let api = Downstream::start();
    let listen = "proxy_protocol_from = [\"127.0.0.1\"]\n";
    let limits = "[limits]\nhandshake_timeout = \"300ms\"\n";
    let gateway = Gateway::listening(api.address, listen, "http", limits);
    let mut slow = Connection::open(gateway.proxy);
    slow.write("PROXY TC");
    assert!(slow.is_closed_by_peer());

    let listen = "proxy_protocol_from = [\"192.0.2.0/24\"]\n";
    let gateway = Gateway::listening(api.address, listen, "http", "");
    let mut client = Connection::open(gateway.proxy);
    client.write("PROXY TCP4 203.0.113.9 127.0.0.1 4 80\r\nPUT /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read().status, 400);
    assert_eq!(api.seen().len(), 0);
}
