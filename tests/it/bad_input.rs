//! Whatever a client sends, it gets a clear answer, nothing is forwarded that should not be, and
//! nobody else is delayed.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, Connection, exchange, request, send};
use crate::support::wait_until;

/// Limits that a test can reach quickly.
const TIGHT: &str = "[limits]\nhead_timeout = \"400ms\"\nbody_timeout = \"600ms\"\n\
                     head_size = \"16KiB\"\nhead_fields = 20\n";

/// Expects a problem document with these properties.
#[track_caller]
fn assert_problem(answer: &Answer, status: u16, code: &str, outcome: &str) {
    let got = (answer.status, answer.code(), answer.outcome());
    assert_eq!(got, (status, code.to_owned(), outcome.to_owned()), "{answer:?}");
}

/// The head of a fenced PUT without what says how long its body is.
fn put_head(token: u64) -> String {
    format!("PUT /x HTTP/1.1\r\nHost: test\r\nFencing-Token: {token}\r\n")
}

/// `body` in chunks of `size` bytes, ended with `trailers`.
fn chunked(token: u64, body: &[u8], size: usize, trailers: &str) -> Vec<u8> {
    let mut bytes = put_head(token).into_bytes();
    bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
    for chunk in body.chunks(size) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    bytes
}

/// Bytes in which a lost or doubled piece would be seen.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 31 % 251).expect("below 251")).collect()
}

#[test]
fn a_malformed_token_is_told_what_is_wrong_with_it() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let tokens: [&[u8]; 22] = [
        b"+1",
        b"-1",
        b"1 2",
        b"1,2",
        b"1, 1",
        b"01",
        b"0",
        b"00",
        b"0x1f",
        b"1f",
        b"1.0",
        b"1e3",
        b"\"1\"",
        b"1_000",
        b"",
        b"   ",
        b"99999999999999999999",
        b"9223372036854775808",
        b"18446744073709551617",
        "٤٢".as_bytes(),
        "１２".as_bytes(),
        b"\xff",
    ];
    for token in tokens {
        for name in ["Fencing-Token", "X-Fencing-Token"] {
            let mut bytes = format!("PUT /x HTTP/1.1\r\nHost: test\r\n{name}: ").into_bytes();
            bytes.extend_from_slice(token);
            bytes.extend_from_slice(b"\r\nContent-Length: 1\r\n\r\nb");
            let answer = exchange(gateway.proxy, bytes);
            assert_problem(&answer, 400, "malformed_fencing_token", "not_forwarded");
            assert_eq!(answer.header("x-should-retry"), Some("false"));
        }
    }
    let control = format!("{}X: a\x01b\r\nContent-Length: 0\r\n\r\n", put_head(1));
    assert_problem(&exchange(gateway.proxy, control), 400, "invalid_request", "not_forwarded");
    assert_eq!(api.seen().len(), 0);
    assert_eq!(gateway.mark("/x"), None);
    // White space around the value is no part of it (RFC 9110 §5.5).
    let padded = request("PUT", "/x", &[("Fencing-Token", " \t 9223372036854775807 \t")], b"");
    assert_eq!(exchange(gateway.proxy, padded).status, 200);
}

#[test]
fn a_token_that_is_not_the_holders_grants_nothing_and_poisons_nothing() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let of_another = gateway.acquire("/y", "y", 60_000);
    let holder = gateway.acquire("/x", "x", 60_000);
    let of_later = gateway.acquire("/z", "z", 60_000);
    for before_first_write in [true, false] {
        for token in [of_later, holder + 1000, i64::MAX as u64] {
            let answer = gateway.put("/x", token, "forged");
            assert_problem(&answer, 403, "fencing_token_not_held", "not_forwarded");
        }
        let lower = gateway.put("/x", of_another, "forged");
        assert_problem(&lower, 412, "stale_fencing_token", "not_forwarded");
        let mark = gateway.mark("/x");
        assert!(mark.is_none() && before_first_write || mark == Some(holder), "{mark:?}");
        assert_eq!(gateway.put("/x", holder, "true").status, 200);
        assert_eq!(gateway.mark("/x"), Some(holder));
    }
    for token in [1, i64::MAX as u64] {
        let answer = gateway.put("/nobody", token, "forged");
        assert_problem(&answer, 403, "fencing_token_not_held", "not_forwarded");
    }
    assert_eq!(gateway.mark("/nobody"), None);
    assert_eq!(api.tokens("/x"), [holder, holder]);
    assert_eq!(api.seen().len(), 2);
}

#[test]
fn a_resource_name_that_no_store_could_keep_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\n\
         [[route]]\nname = \"items\"\npath = \"/items/{{name}}\"\nresource = \"item:{{name}}\"\n\
         tokens = \"ordered\"\n\
         [[route]]\nname = \"files\"\npath = \"/{{*rest}}\"\nresource = \"{{rest}}\"\n\
         tokens = \"ordered\"\n",
        api.address
    ));
    let long = "x".repeat(10_000);
    let longest = format!("/{}", "x".repeat(1025));
    for target in [
        "/",
        "/items/a%00b",
        "/items/a%0Ab",
        "/items/a%7Fb",
        "/items/a%C2%85b",
        "/items/%FF",
        "/items/%C3",
        &format!("/items/{long}"),
        &format!("/{long}"),
        &longest,
    ] {
        let answer = gateway.put(target, 1, "b");
        assert_problem(&answer, 400, "unresolvable_resource", "not_forwarded");
    }
    assert_eq!(api.seen().len(), 0);
    assert_eq!(gateway.put(&longest[..1025], 1, "b").status, 200);
    assert_eq!(gateway.put("/items/%20%F0%9F%94%92", 1, "b").status, 200);
    assert_eq!(gateway.mark("item: \u{1f512}"), Some(1));

    let body = br#"{"owner":"a","ttl_ms":1000,"wait_ms":0}"#;
    for name in ["", "a%00b", "a%0Ab", "%FF", "%C3", "%", "%zz", long.as_str()] {
        for (method, rest) in [("POST", ""), ("GET", ""), ("POST", "/renew")] {
            let target = format!("/v1/leases/{name}{rest}");
            let answer = send(gateway.leases, method, &target, &[], body);
            assert!([400, 404].contains(&answer.status), "{method} {name:.9}{rest}: {answer:?}");
            assert_eq!(answer.outcome(), "not_forwarded");
        }
    }
    assert_eq!(gateway.lease_api("GET", "", "", &serde_json::json!({})).status, 400);
}

#[test]
fn a_body_over_the_limit_is_refused_whether_announced_or_not() {
    let api = Downstream::start();
    let gateway = Gateway::with_route(
        api.address,
        "tokens = \"ordered\"\nbuffer = \"10KiB\"\nmax_body = \"100KiB\"\n",
    );
    let small = Gateway::with_route(
        api.address,
        "tokens = \"ordered\"\nbuffer = \"10KiB\"\nmax_body = \"8KiB\"\n",
    );
    let too_large = pattern(102_401);
    let answer =
        exchange(gateway.proxy, request("PUT", "/x", &[("Fencing-Token", "1")], &too_large));
    assert_problem(&answer, 413, "body_too_large", "not_forwarded");
    for size in [8193, 10_241] {
        let answer = exchange(small.proxy, chunked(1, &pattern(size), 1000, ""));
        assert_problem(&answer, 413, "body_too_large", "not_forwarded");
    }
    assert_eq!(api.seen().len(), 0);

    // Only while it is streamed does this one turn out to be too large.
    let answer = exchange(gateway.proxy, chunked(1, &too_large, 5000, ""));
    assert_problem(&answer, 413, "body_too_large", "unknown");
    wait_until("the upload is cut", || api.seen()[0].ended.is_some());
    assert!(!api.seen()[0].is_whole);

    let just = pattern(102_400);
    let whole = exchange(gateway.proxy, request("PUT", "/x", &[("Fencing-Token", "1")], &just));
    assert_eq!(whole.status, 200);
    assert_eq!(exchange(gateway.proxy, chunked(1, &just, 3333, "")).status, 200);
    assert!(api.seen()[1..].iter().all(|seen| seen.body == just));
}

#[test]
fn chunked_bodies_arrive_whole_and_equal() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let sizes =
        [(0, 1), (1, 1), (17, 1), (5000, 7), (65_536, 65_536), (65_537, 8191), (400_000, 9973)];
    for trailers in ["", "X-Sum: 1\r\nFencing-Token: 99\r\n"] {
        for (length, size) in sizes {
            let body = pattern(length);
            let answer = exchange(gateway.proxy, chunked(1, &body, size, trailers));
            assert_eq!(answer.status, 200, "{length} in {size}");
            let seen = api.seen().pop().expect("it was forwarded");
            assert!(seen.is_whole && seen.body == body, "{length} in {size}");
            assert_eq!(seen.token(), Some(1));
        }
    }
    assert_eq!(api.seen().len(), 2 * sizes.len());
}

#[test]
fn a_broken_body_is_not_forwarded_as_if_it_were_whole() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for body in [
        "zz\r\nb\r\n0\r\n\r\n",
        "-1\r\nb\r\n0\r\n\r\n",
        "2\r\nbXX0\r\n\r\n",
        "ffffffffffffffffff\r\nb",
    ] {
        let head = put_head(1);
        let bytes = format!("{head}Transfer-Encoding: chunked\r\n\r\n{body}");
        let answer = exchange(gateway.proxy, bytes);
        assert_problem(&answer, 400, "invalid_request", "not_forwarded");
    }
    // Shorter than announced, then the end.
    let mut client = Connection::open(gateway.proxy);
    client.write(format!("{}Content-Length: 10\r\n\r\nshort", put_head(1)));
    client.0.shutdown(Shutdown::Write).expect("it is open");
    let _ = client.try_read();
    assert_eq!(api.seen().len(), 0);
    // Longer than announced: the rest is the next request, and no good one.
    let mut client = Connection::open(gateway.proxy);
    client.write(format!("{}Content-Length: 4\r\n\r\nlong and more", put_head(1)));
    assert_eq!(client.read().status, 200);
    assert_eq!(client.read().code(), "invalid_request");
    assert_eq!(api.seen().len(), 1);
    assert_eq!(api.seen()[0].body, b"long");
}

#[test]
fn a_streamed_body_that_ends_early_leaves_the_write_in_doubt() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let mut client = Connection::open(gateway.proxy);
    client.write(format!("{}Content-Length: 200000\r\n\r\n", put_head(1))).write(pattern(100_000));
    api.wait_for(1);
    drop(client);
    wait_until("the upload is cut", || api.seen()[0].ended.is_some());
    assert!(!api.seen()[0].is_whole);
    wait_until("the write is in doubt", || {
        gateway.admin("/v1/in-doubt").json()["in_doubt"].as_array().is_some_and(|d| d.len() == 1)
    });
}

#[test]
fn a_head_that_comes_too_slowly_is_told_so() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, TIGHT);
    let mut client = Connection::open(gateway.proxy);
    for turn in 0..2 {
        if turn == 1 {
            // The same after a first request on the connection.
            client = Connection::open(gateway.proxy);
            client.write(request("PUT", "/x", &[("Fencing-Token", "1")], b"first"));
            assert_eq!(client.read().status, 200);
        }
        let mut slow = client.0.try_clone().expect("a socket can be shared");
        let dripping = thread::spawn(move || {
            for byte in request("PUT", "/x", &[("Fencing-Token", "1")], b"slow") {
                if slow.write_all(&[byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let started = Instant::now();
        assert_problem(&client.read(), 408, "request_timeout", "not_forwarded");
        assert!(started.elapsed() >= Duration::from_millis(400));
        assert!(client.is_closed_by_peer());
        drop(client.0.shutdown(Shutdown::Both));
        dripping.join().expect("no panic");
    }
    assert_eq!(api.seen().len(), 1);
}

#[test]
fn a_body_that_comes_too_slowly_is_told_so_and_delays_nobody() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, TIGHT);
    let mut client = Connection::open(gateway.proxy);
    client.write(format!("{}Content-Length: 1000\r\n\r\n", put_head(1)));
    let mut slow = client.0.try_clone().expect("a socket can be shared");
    let dripping = thread::spawn(move || {
        while slow.write_all(b"b").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    // A newer holder is not kept waiting by it.
    let started = Instant::now();
    assert_eq!(gateway.put("/x", 2, "newer").status, 200);
    assert!(started.elapsed() < Duration::from_millis(500));
    assert_problem(&client.read(), 408, "request_timeout", "not_forwarded");
    assert!(client.is_closed_by_peer());
    drop(client.0.shutdown(Shutdown::Both));
    dripping.join().expect("no panic");
    assert_eq!(api.tokens("/x"), [2]);
}

#[test]
fn a_streamed_body_that_pauses_is_cut_and_in_doubt() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, TIGHT);
    let mut client = Connection::open(gateway.proxy);
    client.write(format!("{}Content-Length: 200000\r\n\r\n", put_head(1))).write(pattern(100_000));
    assert_problem(&client.read(), 502, "upstream_outcome_unknown", "unknown");
    assert!(!api.seen()[0].is_whole);
}

#[test]
fn a_slow_upstream_is_not_held_against_the_client() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, TIGHT);
    api.behave("/x", Behaviour::HoldAfterHead);
    let body = pattern(20_000_000);
    let upload = request("PUT", "/x", &[("Fencing-Token", "1")], &body);
    let mut client = Connection::open(gateway.proxy);
    let mut uploading = client.0.try_clone().expect("a socket can be shared");
    let upload = thread::spawn(move || uploading.write_all(&upload));
    api.wait_for(1);
    // Longer than body_timeout, in which the upstream takes nothing.
    thread::sleep(Duration::from_millis(1200));
    api.let_go("/x");
    assert_eq!(client.read().status, 200);
    upload.join().expect("no panic").expect("all was taken");
    assert!(api.seen()[0].body == body);
}

#[test]
fn a_head_that_is_too_large_is_told_so() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, TIGHT);
    let long = "x".repeat(20_000);
    let heads = [
        format!("{}X-Long: {long}\r\n\r\n", put_head(1)),
        format!("PUT /{long} HTTP/1.1\r\nHost: test\r\n\r\n"),
        format!("{}{}\r\n", put_head(1), "X-Many: 1\r\n".repeat(19)),
        // More than any buffer on the way holds, so that the answer comes while it is sent.
        format!("{}X-Long: {}\r\n\r\n", put_head(1), "x".repeat(1_000_000)),
    ];
    for head in heads {
        let mut client = Connection::open(gateway.proxy);
        // It may be refused before all of it is sent.
        let _ = client.0.write_all(head.as_bytes());
        assert_problem(&client.read(), 431, "head_too_large", "not_forwarded");
    }
    assert_eq!(api.seen().len(), 0);
}

#[test]
fn what_is_not_http_is_told_so() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let garbage: [&[u8]; 12] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03rest of a TLS hello",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"hello there\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/3.0\r\n\r\n",
        b"GET / http/1.1\r\nHost: a\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n: empty\r\n\r\n",
        b"\0\0\0\0\0\0\0\0",
    ];
    for bytes in garbage {
        let mut client = Connection::open(gateway.proxy);
        client.write(bytes);
        let answer = client.read();
        assert_problem(&answer, 400, "invalid_request", "not_forwarded");
        assert!(client.is_closed_by_peer());
    }
    assert_eq!(api.seen().len(), 0);
}

#[test]
fn a_large_upload_streams_through_in_bounded_memory() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let peak_kib = || {
        let status = fs::read_to_string(format!("/proc/{}/status", gateway.pid().as_raw_nonzero()));
        let status = status.expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux has it");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number")
    };
    assert_eq!(gateway.put("/x", 1, "first").status, 200);
    let before = peak_kib();
    let body = pattern(50 << 20);
    let upload = request("PUT", "/x", &[("Fencing-Token", "1")], &body);
    assert_eq!(exchange(gateway.proxy, upload).status, 200);
    assert!(api.seen()[1].body == body);
    let grown = peak_kib() - before;
    assert!(grown < 8 << 10, "{grown} KiB for 50 MiB");
}

#[test]
fn an_upload_that_is_refused_is_told_why_however_large_it_is() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    assert_eq!(gateway.put("/x", 9, "first").status, 200);
    let body = pattern(10 << 20);
    let stale = request("PUT", "/x", &[("Fencing-Token", "8")], &body);
    let mut client = Connection::open(gateway.proxy);
    for _ in 0..5 {
        client.write(&stale);
        assert_problem(&client.read(), 412, "stale_fencing_token", "not_forwarded");
    }
    // The connection is still good for a write that is let in.
    client.write(request("PUT", "/x", &[("Fencing-Token", "9")], b"second"));
    assert_eq!(client.read().status, 200);
    assert_eq!(api.tokens("/x"), [9, 9]);
}

#[test]
fn answers_without_a_body_pass() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let say = |head: &str| Behaviour::Say(format!("HTTP/1.1 {head}\r\n\r\n").into_bytes(), false);
    api.behave("/204", say("204 No Content\r\nX-A: 1"));
    api.behave("/304", say("304 Not Modified\r\nContent-Length: 77\r\nETag: \"a\""));
    api.behave("/head", say("200 OK\r\nContent-Length: 77"));
    let mut client = Connection::open(gateway.proxy);
    for _ in 0..2 {
        client.write(request("PUT", "/204", &[("Fencing-Token", "1")], b"b"));
        assert_eq!(client.read().header("x-a"), Some("1"));
        client.write(request("GET", "/304", &[], b""));
        assert_eq!(client.read().header("etag"), Some("\"a\""));
        client.write(request("HEAD", "/head", &[], b""));
        assert_eq!(client.read_head().header("content-length"), Some("77"));
        client.write(request("GET", "/x", &[], b""));
        assert_eq!(client.read().body, b"done\n");
    }
}

#[test]
fn a_client_that_asks_whether_to_go_on_is_told_only_if_its_write_is_let_in() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    assert_eq!(gateway.put("/x", 9, "first").status, 200);
    for length in [5, 500_000] {
        let expect = format!("Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n");
        let mut client = Connection::open(gateway.proxy);
        client.write(format!("{}{expect}", put_head(9)));
        assert_eq!(client.read_head().status, 100);
        client.write(pattern(length));
        assert_eq!(client.read().status, 200);
        let seen = api.seen().pop().expect("it was forwarded");
        assert!(seen.body == pattern(length));
        assert_eq!(seen.header("expect"), None);
    }
    // No token: the first answer is the last.
    let mut client = Connection::open(gateway.proxy);
    client.write(
        "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.read_head().status, 428);
    // Stale, and too large for the buffer: likewise.
    let mut client = Connection::open(gateway.proxy);
    client.write(format!("{}Content-Length: 500000\r\nExpect: 100-continue\r\n\r\n", put_head(8)));
    assert_eq!(client.read_head().status, 412);
}

#[test]
fn clients_of_http_1_0_are_served() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let put = "PUT /x HTTP/1.0\r\nFencing-Token: 1\r\nContent-Length: 3\r\n\r\nold";
    let mut client = Connection::open(gateway.proxy);
    client.write(put);
    assert_eq!(client.read().status, 200);
    assert!(client.is_closed_by_peer());
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    api.behave("/chunks", Behaviour::Say(chunks.to_vec(), false));
    let answer = exchange(gateway.proxy, "GET /chunks HTTP/1.0\r\n\r\n");
    assert_eq!(answer.header("transfer-encoding"), None);
    assert_eq!(answer.body, b"abc");
    let without = exchange(gateway.proxy, "PUT /x HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
    assert_problem(&without, 428, "fencing_token_required", "not_forwarded");
    let seen = &api.seen()[0];
    assert_eq!(
        (seen.body.as_slice(), seen.header("host")),
        (&b"old"[..], Some(&*api.address.to_string()))
    );
}

#[test]
fn a_client_that_closes_its_half_is_taken_for_gone() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    api.behave("/x", Behaviour::Hold);
    let mut client = Connection::open(gateway.proxy);
    client.write(request("PUT", "/x", &[("Fencing-Token", "1")], b"half"));
    api.wait_for(1);
    client.0.shutdown(Shutdown::Write).expect("it is open");
    let mut rest = Vec::new();
    let _ = client.0.read_to_end(&mut rest);
    assert_eq!(rest, b"", "nobody is there to be told");
    // Its write goes on to its end all the same.
    api.let_go("/x");
    wait_until("the write is over", || api.seen()[0].ended.is_some());
    assert_eq!(api.seen().len(), 1);
    assert!(api.seen()[0].is_whole);
}
