//! Whatever a client sends, it gets a clear answer, nothing is forwarded that should not be, and
//! nobody else is delayed.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::{Gateway, TIGHT};
use crate::support::http::{Connection, assert_problem, exchange, put_head, request, send};
use crate::support::wait_until;

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
    let garbage: [&[u8]; 11] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03rest of a TLS hello",
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

#[test]
fn a_client_that_does_not_take_its_answer_is_let_go() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, TIGHT);
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n".to_vec();
    answer.resize(answer.len() + 30_000_000, b'a');
    api.behave("/large", Behaviour::Say(answer, false));
    let mut slow = Connection::open(gateway.proxy);
    slow.write(request("GET", "/large", &[], b""));
    let open = |connections: u32| {
        let metrics = gateway.admin_text("/metrics");
        metrics.contains(&format!("\nfencegate_connections {connections}\n"))
    };
    wait_until("it is connected", || open(1));
    wait_until("it is let go", || open(0));
    // One that takes it slowly, but takes it, gets all of it.
    let mut client = Connection::open(gateway.proxy);
    client.write(request("GET", "/large", &[], b""));
    let mut taken = vec![0; 12_000_000];
    for _ in 0..2 {
        client.0.read_exact(&mut taken).expect("more is to come");
        thread::sleep(Duration::from_millis(300));
    }
    let mut rest = vec![0; 6_000_000];
    client.0.read_exact(&mut rest).expect("the rest");
}
