//! HTTP/2 to upstreams: what a cut, a refused stream, an early answer and a lost connection mean for a write.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::gateway::Gateway;
use crate::support::h2::{
    DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, H2, HEADERS, RST_STREAM, frame,
};
use crate::support::http::{Connection, assert_problem, request};
use crate::support::nginx::Nginx;
use crate::support::wait_until;

/// `:status: 200` and `:status: 204` of HPACK's static table.
const OK: &[u8] = &[0x88];
const NO_CONTENT: &[u8] = &[0x89];

/// Bodies that are read before they are forwarded may be large.
const LONG: &str = "buffer = \"1MiB\"\n";

const UPSTREAM: &str = "http\nprotocol = \"http2\"\n";

/// An upstream of the test's own; each connection is taken when the test wants it.
struct Api(TcpListener);

impl Api {
    fn start() -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        socket2::SockRef::from(&listener).set_recv_buffer_size(4096).expect("a socket");
        Api(listener)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("it is bound")
    }

    /// The next connection, with these settings of ours.
    #[track_caller]
    fn accept(&self, settings: &[u8]) -> H2 {
        self.0.set_nonblocking(true).expect("a socket");
        let mut accepted = None;
        wait_until("a connection comes", || {
            accepted = self.0.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.expect("waited for it");
        stream.set_nonblocking(false).expect("a socket");
        H2::accept(stream, settings).expect("it speaks HTTP/2")
    }

    #[track_caller]
    fn assert_nobody_comes(&self, during: Duration, what: &str) {
        self.0.set_nonblocking(true).expect("a socket");
        let began = Instant::now();
        while began.elapsed() < during {
            assert!(self.0.accept().is_err(), "{what}");
            thread::sleep(Duration::from_millis(5));
        }
        self.0.set_nonblocking(false).expect("a socket");
    }
}

/// Reads a request to its end, and gives its stream.
fn read_request(api: &mut H2) -> u32 {
    let is_its_end = |frame: &Frame| frame.stream != 0 && frame.has(END_STREAM);
    api.read_until(is_its_end).expect("a whole request").stream
}

fn answer(api: &mut H2, stream: u32) {
    api.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, NO_CONTENT));
}

fn put_later(gateway: &Gateway, token: u64, body: &[u8]) -> Connection {
    let mut client = Connection::open(gateway.proxy);
    client.write(request("PUT", "/x", &[("Fencing-Token", &token.to_string())], body));
    client
}

#[test]
fn writes_reach_nginx_over_http2_without_tls_and_the_fence_holds() {
    let nginx = Nginx::listening("http2", "");
    let gateway = Gateway::listening(nginx.address, "", UPSTREAM, "");
    for nth in 0..30 {
        assert!([201, 204].contains(&gateway.put("/x", 2, &format!("write {nth}")).status));
    }
    assert_eq!(gateway.put("/x", 1, "late").code(), "stale_fencing_token");
    let large = "a".repeat(5_000_000);
    assert_eq!(gateway.put("/large", 1, &large).status, 201);
    let stored = nginx.stored();
    assert!(stored.contains(&("/x".to_owned(), b"write 29".to_vec())));
    assert!(stored.contains(&("/large".to_owned(), large.into_bytes())));
    assert_eq!(nginx.accesses().iter().filter(|access| access.token == Some(1)).count(), 1);
}

#[test]
fn a_connection_carries_one_request_at_a_time_and_is_used_again() {
    let api = Api::start();
    let gateway = Gateway::listening(api.address(), "workers = 1\n", UPSTREAM, "");
    let mut first = put_later(&gateway, 1, b"a");
    let mut one = api.accept(&[]);
    let stream = read_request(&mut one);
    let mut second = put_later(&gateway, 1, b"b");
    let mut two = api.accept(&[]);
    let other = read_request(&mut two);
    answer(&mut two, other);
    assert_eq!(second.read().status, 204);
    answer(&mut one, stream);
    assert_eq!(first.read().status, 204);
    // The one that was used last.
    second.write(request("PUT", "/x", &[("Fencing-Token", "1")], b"c"));
    let third = read_request(&mut one);
    assert_eq!(third, stream + 2);
    answer(&mut one, third);
    assert_eq!(second.read().status, 204);
}

#[test]
fn a_cut_resets_the_connection_and_what_the_kernel_still_holds_is_thrown_away() {
    let api = Api::start();
    let gateway = Gateway::listening(api.address(), "workers = 1\n", UPSTREAM, "");
    // All of it fits the windows, and not the receiver's kernel.
    let window = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    let mut old = put_later(&gateway, 1, &vec![b'a'; 60_000]);
    let mut first = api.accept(&window);
    first.read_until(|frame| frame.kind == HEADERS).expect("the older write");
    let began = Instant::now();
    let mut new = put_later(&gateway, 2, b"new");
    let mut second = api.accept(&window);
    assert!(began.elapsed() >= Duration::from_secs(3), "drain 1 s and settle 2 s");
    let stream = read_request(&mut second);
    answer(&mut second, stream);
    assert_eq!(new.read().status, 204);
    assert_problem(&old.read(), 502, "upstream_outcome_unknown", "unknown");
    // What had arrived can be read; the end of the write never comes.
    let is_end = |frame: &Frame| frame.kind == DATA && frame.has(END_STREAM);
    assert!(
        first.read_until(is_end).is_err(),
        "the whole older write arrived after it was settled"
    );
}

#[test]
fn an_early_answer_does_not_let_the_newer_write_overtake_what_the_window_holds_back() {
    let api = Api::start();
    let gateway = Gateway::listening(api.address(), "workers = 1\n", UPSTREAM, LONG);
    // The usual window is 65,535 bytes.
    let mut old = put_later(&gateway, 1, &vec![b'a'; 65_536 + 4000]);
    let mut first = api.accept(&[]);
    let stream = first.read_until(|frame| frame.kind == HEADERS).expect("the older write").stream;
    let mut got = 0;
    while got < 65_535 {
        let data =
            first.read_until(|frame| frame.kind == DATA).expect("what the window lets through");
        assert!(!data.has(END_STREAM));
        got += data.payload.len();
    }
    answer(&mut first, stream);
    assert_eq!(old.read().status, 204);
    let mut new = put_later(&gateway, 2, b"new");
    api.assert_nobody_comes(
        Duration::from_millis(700),
        "the newer write overtook the older one's rest",
    );
    // Now it is read to its end.
    let more = 100_000_u32.to_be_bytes();
    let mut update = frame(8, 0, 0, &more);
    update.extend(frame(8, 0, stream, &more));
    first.write(update);
    first.read_until(|frame| frame.kind == DATA && frame.has(END_STREAM)).expect("the rest");
    let mut second = api.accept(&[]);
    let stream = read_request(&mut second);
    answer(&mut second, stream);
    assert_eq!(new.read().status, 204);
}

#[test]
fn a_refused_stream_is_not_sent_again_although_the_upstream_says_that_it_may_be() {
    let api = Api::start();
    let gateway = Gateway::listening(api.address(), "workers = 1\n", UPSTREAM, "");
    let mut client = put_later(&gateway, 1, b"a");
    let mut upstream = api.accept(&[]);
    let stream = read_request(&mut upstream);
    // REFUSED_STREAM
    upstream.write(frame(RST_STREAM, 0, stream, &7_u32.to_be_bytes()));
    assert_problem(&client.read(), 502, "upstream_outcome_unknown", "unknown");
    api.assert_nobody_comes(Duration::from_millis(300), "it was sent again");
    assert!(upstream.read_until(|frame| frame.stream > stream).is_err());
    assert_eq!(gateway.admin("/v1/in-doubt").json()["in_doubt"][0]["token"], "1");
}

#[test]
fn a_write_that_the_upstreams_goaway_leaves_out_is_in_doubt_and_not_sent_again() {
    let api = Api::start();
    let gateway = Gateway::listening(api.address(), "workers = 1\n", UPSTREAM, "");
    let mut client = put_later(&gateway, 1, b"a");
    let mut upstream = api.accept(&[]);
    read_request(&mut upstream);
    upstream.write(frame(GOAWAY, 0, 0, &[0; 8]));
    assert_problem(&client.read(), 502, "upstream_outcome_unknown", "unknown");
    api.assert_nobody_comes(Duration::from_millis(300), "it was sent again");
}

#[test]
fn a_pooled_connection_that_said_goodbye_is_replaced_before_a_byte_is_written() {
    let api = Api::start();
    let gateway = Gateway::listening(api.address(), "workers = 1\n", UPSTREAM, "");
    let mut client = put_later(&gateway, 1, b"a");
    let mut first = api.accept(&[]);
    let stream = read_request(&mut first);
    answer(&mut first, stream);
    assert_eq!(client.read().status, 204);
    let last = [stream.to_be_bytes(), [0; 4]].concat();
    first.write(frame(GOAWAY, 0, 0, &last));
    // It closes the connection, so it has read that.
    while first.read().is_ok() {}
    client.write(request("PUT", "/x", &[("Fencing-Token", "1")], b"b"));
    let mut second = api.accept(&[]);
    let stream = read_request(&mut second);
    answer(&mut second, stream);
    assert_eq!(client.read().status, 204);
}

#[test]
fn a_client_that_left_does_not_end_its_write_and_the_answers_body_comes_whole() {
    let api = Api::start();
    let gateway = Gateway::listening(api.address(), "workers = 1\n", UPSTREAM, "");
    let left = put_later(&gateway, 1, b"a");
    let mut first = api.accept(&[]);
    let stream = read_request(&mut first);
    drop(left);
    let mut new = put_later(&gateway, 2, b"new");
    api.assert_nobody_comes(Duration::from_millis(500), "the newer write did not wait");
    answer(&mut first, stream);
    // On the same connection: the answer gave it back.
    let stream = read_request(&mut first);
    first.write(frame(HEADERS, END_HEADERS, stream, OK));
    for _ in 0..3 {
        first.write(frame(DATA, 0, stream, b"part "));
    }
    first.write(frame(DATA, END_STREAM, stream, b"end"));
    let answer = new.read();
    assert_eq!((answer.status, answer.body), (200, b"part part part end".to_vec()));
}

/// Part of an upload of this size reaches the upstream, which answers and wants no more of it (RFC 9113 §8.1).
fn answered_early(gateway: &Gateway, api: &Api, upload: &[u8]) -> (Connection, H2) {
    let mut client = Connection::open(gateway.proxy);
    client.write(&upload[..200_000]);
    let mut upstream = api.accept(&[]);
    let stream = upstream.read_until(|frame| frame.kind == DATA).expect("a part of it").stream;
    answer(&mut upstream, stream);
    upstream.write(frame(RST_STREAM, 0, stream, &[0; 4]));
    assert_eq!(client.read().status, 204);
    (client, upstream)
}

#[track_caller]
fn assert_closed(upstream: &mut H2) {
    let end = upstream.read_until(|_| false).expect_err("nothing more is asked for");
    let is_end = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
    assert!(is_end.contains(&end.kind()), "{end}");
}

#[test]
fn an_answer_that_ends_the_upload_of_a_write_leaves_it_in_doubt_and_its_connection_closed() {
    let api = Api::start();
    let gateway = Gateway::listening(api.address(), "workers = 1\n", UPSTREAM, "");
    let upload = request("PUT", "/x", &[("Fencing-Token", "1")], &vec![b'a'; 1_000_000]);
    let (_client, mut upstream) = answered_early(&gateway, &api, &upload);
    assert_closed(&mut upstream);
    let mut listed = serde_json::Value::Null;
    wait_until("it is in doubt", || {
        listed = gateway.admin("/v1/in-doubt").json()["in_doubt"][0].clone();
        listed.is_object()
    });
    assert_eq!(listed["reason"], "answered_before_the_body_was_sent", "{listed}");
    assert!(!gateway.log_text().contains("panicked"), "{}", gateway.log_text());
}

#[test]
fn an_answer_that_ends_the_upload_of_a_read_leaves_no_connection_behind() {
    let api = Api::start();
    let gateway = Gateway::listening(api.address(), "workers = 1\n", UPSTREAM, "");
    let upload = request("GET", "/x", &[], &vec![b'a'; 1_000_000]);
    let (client, mut upstream) = answered_early(&gateway, &api, &upload);
    drop(client);
    assert_closed(&mut upstream);
}
