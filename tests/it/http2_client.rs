//! HTTP/2 on the proxy listener: the promise, what is refused, and what floods.

use std::fs;
use std::process::Command;
use std::thread;

use rustix::process::Signal;

use crate::support::command::run;
use crate::support::curl::{Curled, curl};
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::{Gateway, TIGHT};
use crate::support::h2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, End, GOAWAY, H2, HEADERS, PING, RST_STREAM,
    SETTINGS, fields, frame,
};
use crate::support::http::pattern;
use crate::support::wait_until;

fn put(gateway: &Gateway, token: u64, more: &[&str]) -> Curled {
    let url = format!("http://{}/x", gateway.proxy);
    let token = format!("Fencing-Token: {token}");
    let args = ["--http2-prior-knowledge", "-X", "PUT", "-d", "body", "-H", &token, &url];
    curl(&[&args, more].concat())
}

#[test]
fn the_fence_holds_over_http2_without_tls() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let written = put(&gateway, 2, &[]);
    assert_eq!((written.status, written.version.as_str()), (200, "2"), "{written:?}");
    let expected = (412, "stale_fencing_token".to_owned(), "not_forwarded".to_owned());
    assert_eq!(put(&gateway, 1, &[]).problem(), expected);
    // The same listener still speaks HTTP/1.1.
    assert_eq!(gateway.put("/x", 2, "b").status, 200);
    assert_eq!(api.tokens("/x"), [2, 2]);
}

#[test]
fn a_large_body_streams_whole_and_its_host_and_cookies_come_as_http1_has_them() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("body");
    let body = pattern(3_000_000);
    fs::write(&file, &body).expect("a writable directory");
    let url = format!("http://{}/x?q=%2F", gateway.proxy);
    let from = file.to_str().expect("a path of a test");
    let args = ["--http2-prior-knowledge", "-H", "Fencing-Token: 1", "-T", from, &url];
    assert_eq!(curl(&args).status, 200);
    let seen = &api.seen()[0];
    assert!(seen.body == body, "{} bytes", seen.body.len());
    assert_eq!(seen.target, "/x?q=%2F");
    assert_eq!(seen.header("host"), Some(gateway.proxy.to_string().as_str()));

    let mut client = H2::open(gateway.proxy);
    let more = [("cookie", "a=1"), ("cookie", "b=2"), ("fencing-token", "1"), ("te", "trailers")];
    client.put(1, "/y", &more, b"y");
    assert_eq!(client.end_of(1), End::Answered("done\n".into()));
    let seen = &api.seen()[1];
    assert_eq!(seen.header("cookie"), Some("a=1; b=2"));
    assert_eq!((seen.header("host"), seen.header("te")), (Some("test"), None));
}

#[test]
fn many_requests_at_the_same_time_on_few_connections_are_all_answered() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("body");
    fs::write(&file, "body").expect("a writable directory");
    let mut command = Command::new("h2load");
    command.args(["-n", "600", "-c", "3", "-m", "40", "-H", "fencing-token: 1", "-d"]);
    command.arg(&file).arg(format!("http://{}/x", gateway.proxy));
    let ended = run(command);
    assert!(ended.stdout.contains("600 succeeded, 0 failed, 0 errored"), "{ended:?}");
    assert_eq!(api.tokens("/x").len(), 600);
}

#[test]
fn a_reset_stream_and_a_lost_connection_do_not_end_a_forwarded_write() {
    for is_reset in [true, false] {
        let api = Downstream::start();
        let gateway = Gateway::with_route(api.address, "tokens = \"ordered\"\ndrain = \"20s\"\n");
        api.behave("/x", Behaviour::Hold);
        let mut client = H2::open(gateway.proxy);
        client.put(1, "/x", &[("fencing-token", "1")], b"a");
        api.wait_for(1);
        if is_reset {
            client.write(frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
            // Answered, so the reset before it was read.
            client.write(frame(PING, 0, 0, &[7; 8]));
            client.read_until(|frame| frame.kind == PING && frame.has(ACK)).expect("a pong");
        } else {
            drop(client);
        }
        let proxy = gateway.proxy;
        let newer = thread::spawn(move || {
            let mut client = H2::open(proxy);
            client.put(1, "/x", &[("fencing-token", "2")], b"b");
            client.end_of(1)
        });
        wait_until("the newer token is known", || gateway.mark("/x") == Some(2));
        assert_eq!(api.seen().len(), 1, "it waits");
        api.let_go("/x");
        api.let_go("/x");
        assert_eq!(newer.join().expect("no panic"), End::Answered("done\n".into()));
        let seen = api.seen();
        assert!(seen[0].is_whole && seen[1].began >= seen[0].ended.expect("it was answered"));
        assert_eq!(gateway.admin("/v1/in-doubt").json()["in_doubt"], serde_json::json!([]));
    }
}

#[test]
fn a_write_that_is_cut_for_a_newer_one_is_told_so_on_its_stream() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    api.behave("/x", Behaviour::Silence);
    let mut client = H2::open(gateway.proxy);
    client.put(1, "/x", &[("fencing-token", "1")], b"a");
    client.put(3, "/other", &[("fencing-token", "1")], b"a");
    api.wait_for(2);
    api.behave("/x", Behaviour::Answer);
    assert_eq!(gateway.put("/x", 2, "b").status, 200);
    assert_eq!(client.end_of(1).code(), "upstream_outcome_unknown");
    assert_eq!(gateway.admin("/v1/in-doubt").json()["in_doubt"][0]["token"], "1");
}

/// A request's fields, in the order in which they are sent.
type Head<'a> = Vec<(&'a str, &'a str)>;

fn head<'a>(more: &[(&'a str, &'a str)]) -> Head<'a> {
    let pseudo = [(":method", "PUT"), (":scheme", "http"), (":authority", "test"), (":path", "/x")];
    [&pseudo[..], &[("fencing-token", "1")], more].concat()
}

fn with<'a>(name: &str, value: &'a str) -> Head<'a> {
    let mut head = head(&[]);
    for field in &mut head {
        if field.0 == name {
            field.1 = value;
        }
    }
    head
}

fn without(name: &str) -> Head<'static> {
    head(&[]).into_iter().filter(|field| field.0 != name).collect()
}

#[test]
fn heads_with_two_readings_or_against_the_rfc_never_reach_the_api() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let refused: [(&str, Head<'_>, &str); 21] = [
        ("another Host", head(&[("host", "other")]), "unresolvable_resource"),
        (
            "two Hosts, one another",
            head(&[("host", "test"), ("host", "b")]),
            "unresolvable_resource",
        ),
        ("no authority", without(":authority"), "invalid_request"),
        ("a user name", with(":authority", "user@test"), "invalid_request"),
        ("another scheme", with(":scheme", "ftp"), "invalid_request"),
        ("a padded token", head(&[("x-a", " 1")]), "invalid_request"),
        ("two tokens", head(&[("fencing-token", "2")]), "ambiguous_fencing_token"),
        ("an underscore", head(&[("fencing_token", "1")]), "invalid_request"),
        ("dot segments", with(":path", "/a/../x"), "unresolvable_resource"),
        ("another target", head(&[("x-original-url", "/y")]), "unresolvable_resource"),
        ("TRACE", with(":method", "TRACE"), "method_not_allowed"),
        ("Connection", head(&[("connection", "fencing-token")]), "Reset"),
        ("Transfer-Encoding", head(&[("transfer-encoding", "chunked")]), "Reset"),
        ("Upgrade", head(&[("upgrade", "websocket")]), "Reset"),
        ("Keep-Alive", head(&[("keep-alive", "5")]), "Reset"),
        ("TE", head(&[("te", "gzip")]), "Reset"),
        ("upper case", head(&[("X-Upper", "a")]), "Reset"),
        ("an unknown pseudo-field", head(&[(":origin", "a")]), "Reset"),
        ("two paths", head(&[(":path", "/y")]), "Reset"),
        ("no path", without(":path"), "Reset"),
        (
            "extended CONNECT",
            [&[(":protocol", "websocket")][..], &with(":method", "CONNECT")].concat(),
            "Reset",
        ),
    ];
    for (what, head, code) in refused {
        let mut client = H2::open(gateway.proxy);
        let flags = END_HEADERS | END_STREAM;
        client.write(frame(HEADERS, flags, 1, &fields(&head)));
        let end = client.end_of(1);
        // A broken compression context or order ends the whole connection, which is as good.
        let is_closed = code == "Reset" && end == End::Closed;
        assert!(end.code() == code || is_closed, "{what}: {end:?}");
    }
    assert_eq!(api.seen().len(), 0);
}

#[test]
fn heads_beyond_the_limits_are_refused() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, TIGHT);
    let mut client = H2::open(gateway.proxy);
    let more: Vec<(&str, &str)> = (0..30).map(|_| ("x-many", "a")).collect();
    client.put(1, "/x", &more, b"");
    assert_eq!(client.end_of(1).code(), "head_too_large");
    let long = "a".repeat(12_000);
    let mut client = H2::open(gateway.proxy);
    client.put(1, "/x", &[("x-a", &long)], b"");
    assert_eq!(client.end_of(1).code(), "fencing_token_required", "it is within the limit");
    let url = format!("http://{}/x", gateway.proxy);
    let [a, b] = ["a", "b"].map(|name| format!("x-{name}: {long}"));
    let args = ["--http2-prior-knowledge", "-d", "", "-H", &a, "-H", &b, &url];
    assert_ne!(curl(&args).status, 200);
    assert_eq!(api.seen().len(), 0);
}

/// CVE-2023-44487.
#[test]
fn rapid_resets_end_the_connection_and_reach_the_api_a_bounded_number_of_times() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    api.behave("/x", Behaviour::Hold);
    let head = fields(&head(&[]));
    let reset = |stream| {
        let begin = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
        [begin, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    // In one burst, as the attack does it.
    let mut client = H2::open(gateway.proxy);
    let burst: Vec<u8> = (0..5000).flat_map(|nth| reset(2 * nth + 1)).collect();
    let _ = std::io::Write::write_all(&mut client.0, &burst);
    assert_eq!(client.end_of(u32::MAX), End::Closed);
    let after_burst = api.seen().len();
    assert!(after_burst <= 130, "{after_burst}");

    // One by one, each when the last has reached the API: bounded all the same.
    let mut client = H2::open(gateway.proxy);
    let mut stream = 1;
    let is_closed = loop {
        let seen = api.seen().len();
        let begin = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
        if std::io::Write::write_all(&mut client.0, &begin).is_err() {
            break true;
        }
        let mut tries = 0;
        while api.seen().len() == seen && tries < 400 {
            thread::sleep(std::time::Duration::from_millis(5));
            tries += 1;
        }
        if tries == 400 || stream > 400 {
            break client.end_of(u32::MAX) == End::Closed;
        }
        let _ = std::io::Write::write_all(
            &mut client.0,
            &frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
        );
        stream += 2;
    };
    assert!(is_closed && stream > 100, "{stream}");
    assert!(api.seen().len() - after_burst <= 110, "{}", api.seen().len());
    assert_eq!(gateway.put("/other", 1, "b").status, 200, "others are served");
}

fn resident_kib(gateway: &Gateway) -> u64 {
    let pid = gateway.pid().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux says it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn floods_of_control_frames_cost_bounded_memory_and_others_are_served() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    assert_eq!(gateway.put("/x", 1, "a").status, 200);
    let before = resident_kib(&gateway);
    let settings = [0, 4, 0, 0, 255, 255];
    let floods: [(&str, Vec<u8>); 5] = [
        ("PING", frame(PING, 0, 0, &[1; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &settings)),
        ("empty DATA", frame(DATA, 0, 1, &[])),
        ("CONTINUATION", frame(CONTINUATION, 0, 1, &fields(&[("x-a", "b")]))),
        ("empty CONTINUATION", frame(CONTINUATION, 0, 1, &[])),
    ];
    for (what, one) in floods {
        let mut client = H2::open(gateway.proxy);
        if one[3] == CONTINUATION {
            client.write(frame(HEADERS, 0, 1, &fields(&head(&[]))));
        } else if one[3] == DATA {
            client.write(frame(HEADERS, END_HEADERS, 1, &fields(&head(&[]))));
        }
        let many: Vec<u8> = one.iter().copied().cycle().take(one.len() * 1000).collect();
        client.0.set_write_timeout(Some(std::time::Duration::from_secs(1))).expect("a socket");
        // Nothing that the gateway answers is read.
        for _ in 0..300 {
            if std::io::Write::write_all(&mut client.0, &many).is_err() {
                break;
            }
        }
        assert_eq!(gateway.put("/x", 1, "a").status, 200, "{what}");
        let grown = resident_kib(&gateway).saturating_sub(before);
        assert!(grown < 40 * 1024, "{what}: {grown} KiB");
    }
}

#[test]
fn an_answer_that_a_client_does_not_take_is_given_up() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, TIGHT);
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n{}", "a".repeat(900_000));
    api.behave("/x", Behaviour::Say(large.into_bytes(), false));
    // A window of nothing for each stream.
    let mut client = H2::open_with(gateway.proxy, &[(4, 0)]);
    client.put(1, "/x", &[("fencing-token", "1")], b"a");
    assert_eq!(client.end_of(1), End::Reset);
    // The connection goes on.
    client.put(3, "/y", &[], b"a");
    client.read_until(|frame| frame.kind == HEADERS && frame.stream == 3).expect("an answer");
}

#[test]
fn the_end_of_the_gateway_waits_for_requests_in_flight_on_http2() {
    let api = Downstream::start();
    let mut gateway = Gateway::ordered(api.address, "");
    api.behave("/x", Behaviour::Hold);
    let mut client = H2::open(gateway.proxy);
    client.put(1, "/x", &[("fencing-token", "1")], b"a");
    api.wait_for(1);
    gateway.signal(Signal::TERM);
    client.read_until(|frame| frame.kind == GOAWAY).expect("it says that it goes");
    api.let_go("/x");
    assert_eq!(client.end_of(1), End::Answered("done\n".into()));
    drop(client);
    assert!(gateway.wait().success());
}

#[test]
fn a_content_length_that_is_none_or_is_there_twice_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for lengths in [&[""][..], &["", "2"], &["2", "2"], &["+2"], &["2, 2"]] {
        let mut client = H2::open(gateway.proxy);
        let lengths: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
        client.put(1, "/x", &[&[("fencing-token", "1")], &*lengths].concat(), b"ab");
        let end = client.end_of(1);
        assert!(!matches!(&end, End::Answered(body) if body.is_empty()), "{lengths:?}: {end:?}");
    }
    assert_eq!(api.seen().len(), 0);
    let mut client = H2::open(gateway.proxy);
    client.put(1, "/x", &[("fencing-token", "1"), ("content-length", "2")], b"ab");
    client.end_of(1);
    assert_eq!(api.seen().len(), 1);
}
