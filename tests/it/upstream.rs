//! An upstream that misbehaves: no write reaches it twice, and nobody is told "not forwarded"
//! unless it saw nothing.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::{Connection, assert_problem, exchange, request};
use crate::support::wait_until;

fn say(bytes: impl Into<Vec<u8>>) -> Behaviour {
    Behaviour::Say(bytes.into(), true)
}

/// The same, and keeps the connection.
fn go_on(bytes: impl Into<Vec<u8>>) -> Behaviour {
    Behaviour::Say(bytes.into(), false)
}

fn in_doubt(gateway: &Gateway) -> usize {
    let doubts = gateway.admin("/v1/in-doubt").json();
    doubts["in_doubt"].as_array().map_or(0, Vec::len)
}

#[test]
fn an_upstream_that_refuses_connections_has_seen_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let gateway = Gateway::ordered(closed.expect("a free port"), "");
    let answer = gateway.put("/x", 1, "b");
    assert_problem(&answer, 502, "upstream_unreachable", "not_forwarded");
    assert_eq!(answer.header("x-should-retry"), None, "a retry may help");
    assert_eq!(in_doubt(&gateway), 0);
    // Nothing is in doubt, so a newer token does not wait.
    let started = Instant::now();
    assert_eq!(gateway.put("/x", 2, "b").code(), "upstream_unreachable");
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn an_upstream_that_does_not_accept_in_time_has_seen_nothing() {
    // A listener whose queue is full: further connections are never made.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let socket = socket2::SockRef::from(&listener);
    socket.listen(0).expect("a bound socket");
    let address: SocketAddr = listener.local_addr().expect("a bound socket");
    let fill = Duration::from_millis(200);
    let queue: Vec<_> =
        (0..8).map_while(|_| std::net::TcpStream::connect_timeout(&address, fill).ok()).collect();
    assert!(queue.len() < 8, "the queue has an end");
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{address}\"\nconnect_timeout = \"300ms\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n"
    ));
    let answer = gateway.put("/x", 1, "b");
    assert_problem(&answer, 502, "upstream_unreachable", "not_forwarded");
    assert_eq!(in_doubt(&gateway), 0);
}

#[test]
fn an_answer_that_is_none_leaves_the_write_in_doubt_and_is_not_tried_again() {
    let head = "HTTP/1.1 200 OK\r\n";
    let many = format!("{head}{}\r\n", "X: 1\r\n".repeat(500));
    let large = format!("{head}X: {}\r\n\r\n", "x".repeat(2_000_000));
    let behaviours = [
        Behaviour::ResetBefore,
        Behaviour::ResetInstead,
        say(""),
        say("HTTP/1.1 20"),
        say("HTTP/1.1 200 OK\r\nContent-Le"),
        say("garbage\r\n\r\n"),
        say("\0\u{1}\u{2}"),
        say("HTTP/2.0 200 OK\r\n\r\n"),
        say("HTTP/1.1 999999 What\r\n\r\n"),
        say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nbb"),
        say("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nbb"),
        say("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nbb"),
        say("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nbb"),
        say("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nbb"),
        say(
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        say(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        say("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\nok"),
        say("HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nok"),
        say("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        say("HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok"),
        say("HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok"),
        say("HTTP/1.1 200 OK\r\nX\r\nContent-Length: 2\r\n\r\nok"),
        say("HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nok"),
        say("HTTP/1.1 100 Continue\r\n\r\n"),
        say("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"),
        say(many),
        say(large),
    ];
    for behaviour in behaviours {
        let api = Downstream::start();
        let gateway = Gateway::ordered(api.address, "");
        // Once on a new connection and once on one that carried a request before.
        for warm in [false, true] {
            let before = api.seen().len();
            if warm {
                api.behave("/x", Behaviour::Answer);
                assert_eq!(gateway.put("/x", 1, "warm").status, 200);
            }
            api.behave("/x", behaviour.clone());
            let answer = gateway.put("/x", 1, "b");
            let what = format!("{behaviour:.80?}, warm: {warm}");
            assert_eq!(answer.status, 502, "{what}: {answer:?}");
            assert_problem(&answer, 502, "upstream_outcome_unknown", "unknown");
            assert_eq!(answer.header("x-should-retry"), Some("false"));
            assert_eq!(api.seen().len(), before + 1 + usize::from(warm), "{what}");
        }
        assert_eq!(in_doubt(&gateway), 2);
    }
}

#[test]
fn an_answer_that_breaks_off_is_seen_to_be_broken_by_the_client() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ] {
        api.behave("/x", say(answer));
        let mut client = Connection::open(gateway.proxy);
        client.write(request("PUT", "/x", &[("Fencing-Token", "1")], b"b"));
        assert!(client.try_read().is_err(), "{answer}");
    }
    assert_eq!(api.seen().len(), 3, "none was sent twice");
    // The upstream had the write and answered it, so it is over.
    assert_eq!(in_doubt(&gateway), 0);
}

/// What a client gets from now on, up to the end of the answer that ends with `last`.
fn read_until(client: &mut Connection, last: &[u8]) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(last) {
        let mut byte = [0];
        client.0.read_exact(&mut byte).expect("it says more");
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).expect("heads are text")
}

const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\
                       HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\
                       Content-Length: 5\r\nKeep-Alive: timeout=5\r\n\r\n";
const FINAL: &str = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn interim_answers_come_before_the_answer_without_what_ends_at_the_upstreams_hop() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    api.behave("/x", go_on(format!("{INTERIM}{FINAL}")));
    let mut client = Connection::open(gateway.proxy);
    for _ in 0..3 {
        client.write(request("PUT", "/x", &[("Fencing-Token", "1")], b"b"));
        let got = read_until(&mut client, b"\r\n\r\nok");
        let interim = "HTTP/1.1 102 Processing\r\n\r\n\
                       HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 201 Created\r\n";
        assert!(got.starts_with(interim), "{got}");
    }
    assert_eq!(api.seen().len(), 3);
    assert_eq!(in_doubt(&gateway), 0);
}

#[test]
fn an_interim_answer_is_passed_on_while_the_answer_is_awaited() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    // The upstream says no more, and keeps the connection.
    api.behave("/x", go_on(INTERIM));
    let mut client = Connection::open(gateway.proxy);
    client.write(request("PUT", "/x", &[("Fencing-Token", "1")], b"b"));
    let got = read_until(&mut client, b"link: </a>\r\n\r\n");
    assert!(got.starts_with("HTTP/1.1 102 "), "{got}");
    assert_eq!(in_doubt(&gateway), 0, "nothing is decided yet");
    let answer = client.read();
    assert_problem(&answer, 504, "upstream_timeout", "unknown");
}

#[test]
fn a_client_of_http_10_gets_no_interim_answer() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    api.behave("/x", go_on(format!("{INTERIM}{FINAL}")));
    let mut client = Connection::open(gateway.proxy);
    client.write("PUT /x HTTP/1.0\r\nHost: a\r\nFencing-Token: 1\r\nContent-Length: 1\r\n\r\nb");
    let got = read_until(&mut client, b"\r\n\r\nok");
    assert!(got.starts_with("HTTP/1.0 201 "), "{got}");
}

#[test]
fn a_stray_answer_is_not_taken_for_that_of_the_next_write() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let twice = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\
                 HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nstray";
    api.behave("/twice", go_on(twice));
    let mut client = Connection::open(gateway.proxy);
    for _ in 0..50 {
        client.write(request("PUT", "/twice", &[("Fencing-Token", "1")], b"b"));
        assert_eq!(client.read().body, b"ok");
        client.write(request("PUT", "/x", &[("Fencing-Token", "1")], b"b"));
        assert_eq!(client.read().body, b"done\n");
    }
    assert_eq!(api.seen().len(), 100);
}

#[test]
fn fields_that_end_at_the_upstreams_hop_do_not_go_further() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let answer = "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Private\r\nKeep-Alive: timeout=5\r\n\
                  X-Private: 1\r\nProxy-Connection: a\r\nTrailer: X-Sum\r\nUpgrade: h2c\r\n\
                  X-Public: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n";
    api.behave("/x", go_on(answer));
    let mut client = Connection::open(gateway.proxy);
    for target in ["/x", "/x"] {
        client.write(request("PUT", target, &[("Fencing-Token", "1")], b"b"));
        let answer = client.read();
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"ok"[..]), "{target}");
        for name in ["connection", "keep-alive", "x-private", "proxy-connection", "upgrade"] {
            assert_eq!(answer.header(name), None, "{name}");
        }
        assert_eq!(answer.header("x-public"), Some("1"));
    }
}

#[test]
fn a_connection_that_the_upstream_closes_between_two_writes_loses_and_doubles_none() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    // Says that it keeps the connection, and closes it right after.
    let closing = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    api.behave("/x", say(closing));
    let mut client = Connection::open(gateway.proxy);
    let (mut done, mut unknown) = (Vec::new(), Vec::new());
    for number in 0..300_u32 {
        let body = number.to_string();
        client.write(request("PUT", "/x", &[("Fencing-Token", "1")], body.as_bytes()));
        let answer = client.read();
        match answer.status {
            200 => done.push(body),
            502 if answer.outcome() == "unknown" => unknown.push(body),
            _ => panic!("{answer:?}"),
        }
    }
    let bodies: Vec<_> = api
        .seen()
        .into_iter()
        .filter(|seen| seen.is_whole)
        .map(|seen| String::from_utf8_lossy(&seen.body).into_owned())
        .collect();
    for body in &done {
        assert_eq!(bodies.iter().filter(|seen| *seen == body).count(), 1, "{body}");
    }
    for body in &unknown {
        assert!(bodies.iter().filter(|seen| *seen == body).count() <= 1, "{body}");
    }
    assert!(done.len() > 200, "{} of 300", done.len());
}

#[test]
fn connections_to_the_upstream_are_used_again() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let mut client = Connection::open(gateway.proxy);
    for _ in 0..100 {
        client.write(request("PUT", "/x", &[("Fencing-Token", "1")], b"b"));
        assert_eq!(client.read().status, 200);
    }
    assert_eq!(api.connections(), 1);
}

#[test]
fn an_answer_before_the_end_of_the_upload_does_not_let_a_newer_write_in() {
    let api = Downstream::start();
    let limits = "[limits]\nhead_timeout = \"400ms\"\n";
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"2s\"\nidle = \"300ms\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n\
         drain = \"20s\"\nwait = \"20s\"\n{limits}",
        api.address
    ));
    api.behave("/x", Behaviour::AnswerEarly);
    let body = vec![b'a'; 3_000_000];
    let mut client = Connection::open(gateway.proxy);
    let upload = request("PUT", "/x", &[("Fencing-Token", "1")], &body);
    client.write(&upload[..200_000]);
    assert_eq!(client.read().status, 200);
    let (proxy, newer) = (gateway.proxy, request("PUT", "/x", &[("Fencing-Token", "2")], b"newer"));
    let second = thread::spawn(move || exchange(proxy, newer));
    wait_until("2 is the mark", || gateway.mark("/x") == Some(2));
    // Other writes in the meantime do not take the connection away from the upload, nor do the
    // limits on resting connections and on heads, of which the client sends none.
    for _ in 0..8 {
        assert_eq!(gateway.put("/y", 1, "other").status, 200);
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(api.tokens("/x"), [1]);
    api.let_go("/x");
    let last_part_at = Instant::now();
    client.write(&upload[200_000..]);

    assert_eq!(second.join().expect("no panic").status, 200);

    wait_until("the upload is over", || api.seen()[0].ended.is_some());
    let seen = api.seen();
    assert!(seen[0].is_whole && seen[0].body == body, "the upload went on to its end");
    let newer = seen.iter().find(|seen| seen.token() == Some(2)).expect("it was let in");
    assert!(newer.began >= last_part_at);
    assert_eq!(in_doubt(&gateway), 0);
}

#[test]
fn an_answer_to_an_upload_that_is_not_read_to_its_end_leaves_it_in_doubt() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    api.behave("/x", Behaviour::AnswerAndClose);
    let upload = request("PUT", "/x", &[("Fencing-Token", "1")], &vec![b'a'; 20_000_000]);
    let mut client = Connection::open(gateway.proxy);
    let mut uploading = client.0.try_clone().expect("a socket can be shared");
    let upload = thread::spawn(move || std::io::Write::write_all(&mut uploading, &upload));
    let answer = client.read();
    assert!(answer.status == 200 || answer.outcome() == "unknown", "{answer:?}");
    wait_until("the write is in doubt", || in_doubt(&gateway) == 1);
    upload.join().expect("no panic").expect("the rest is read and thrown away");
    api.behave("/x", Behaviour::Answer);
    let started = Instant::now();
    assert_eq!(gateway.put("/x", 2, "newer").status, 200);
    assert!(started.elapsed() > Duration::from_secs(1), "it waits out the settle time");
}
