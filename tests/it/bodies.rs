//! Request bodies: large, chunked, slow, broken or not wanted.

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::{Gateway, TIGHT};
use crate::support::http::{Connection, assert_problem, exchange, pattern, put_head, request};
use crate::support::wait_until;

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

    let just = pattern(102_400);
    let whole = exchange(gateway.proxy, request("PUT", "/x", &[("Fencing-Token", "1")], &just));
    assert_eq!(whole.status, 200);
    assert_eq!(exchange(gateway.proxy, chunked(1, &just, 3333, "")).status, 200);
    // The one that was cut may have begun to reach the downstream.
    let whole: Vec<_> = api.seen().into_iter().filter(|seen| seen.is_whole).collect();
    assert!(whole.len() == 2 && whole.iter().all(|seen| seen.body == just));
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
fn a_body_that_comes_too_slowly_is_told_so_and_delays_nobody() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "[limits]\nbody_timeout = \"3s\"\n");
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
    assert!(started.elapsed() < Duration::from_secs(2));
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
fn a_chunked_body_of_a_get_reaches_the_upstream_whatever_its_size() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for size in [1, 300_000] {
        let body = "a".repeat(size);
        let chunked = format!(
            "GET /x HTTP/1.1\r\nHost: a\r\nX-HTTP-Method-Override: PUT\r\nFencing-Token: 1\r\n\
             Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n"
        );
        let before = api.seen().len();
        let mut client = Connection::open(gateway.proxy);
        client.write(chunked.as_bytes());
        assert_eq!(client.read().status, 200);
        api.wait_for(before + 1);
        assert_eq!(api.seen()[before].body.len(), size);
    }
}
