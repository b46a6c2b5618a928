//! The same limits where many requests share a connection.

use std::io::Write;
use std::net::SocketAddr;

use super::{assert_overloaded, connect_from, hits, limited, put};
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::h2::{
    ACK, END_HEADERS, END_STREAM, End, Frame, GOAWAY, H2, HEADERS, PING, PREFACE, RST_STREAM,
    SETTINGS, fields, frame,
};
use crate::support::http::Connection;
use crate::support::wait_until;

/// RFC 9113 §7.
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
/// RFC 9113 §6.5.2.
const MAX_CONCURRENT_STREAMS: u16 = 3;

fn open_from(last: u8, to: SocketAddr) -> H2 {
    let mut client = H2::over(connect_from(last, to).0);
    client.write([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
    client
}

fn write(client: &mut H2, stream: u32, path: &str) {
    client.put(stream, path, &[("fencing-token", "1")], b"x");
}

fn reset(client: &mut H2, stream: u32) {
    client.write(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
}

/// Everything that was written before has been read when this returns.
fn exchange_ping(client: &mut H2) {
    client.write(frame(PING, 0, 0, &[7; 8]));
    client.read_until(|frame| frame.kind == PING && frame.has(ACK)).expect("a pong");
}

fn done() -> End {
    End::Answered("done\n".into())
}

fn is_served(gateway: &Gateway) -> bool {
    Connection::open(gateway.proxy).write(put("/others")).read().status == 200
}

#[test]
fn a_connection_of_many_requests_is_one_connection_of_its_client() {
    let api = Downstream::start();
    let gateway = limited(&api, "client_connections = 2\nconnections = 3\n");
    api.behave("/held", Behaviour::Hold);
    let mut clients = [(); 2].map(|()| open_from(7, gateway.proxy));
    for client in &mut clients {
        // `client_connections` counts none of these.
        for stream in [1, 3, 5, 7] {
            client.put(stream, "/held", &[], b"x");
            assert_eq!(client.end_of(stream).code(), "fencing_token_required");
        }
        write(client, 9, "/held");
    }
    api.wait_for(2);
    // In plain text, as nobody has heard it speak: it is HTTP/1.1 that is answered.
    let mut refused = connect_from(7, gateway.proxy);
    assert_overloaded(&refused.write(put("/x")).read());
    let mut refused = open_from(7, gateway.proxy);
    assert_ne!(refused.end_of(1), done());
    assert_eq!(hits(&gateway, "limits.client_connections"), 2);

    let mut other = open_from(8, gateway.proxy);
    write(&mut other, 1, "/x");
    assert_eq!(other.end_of(1), done());
    // Three are open in all.
    assert_overloaded(&connect_from(9, gateway.proxy).write(put("/x")).read());
    assert_eq!(hits(&gateway, "limits.connections"), 1);
    let [first, _second] = clients;
    drop(first);
    wait_until("a place is free", || {
        let mut client = open_from(7, gateway.proxy);
        write(&mut client, 1, "/x");
        client.end_of(1) == done()
    });
}

#[test]
fn requests_count_as_their_client_s_on_whichever_stream_and_after_a_reset() {
    let api = Downstream::start();
    let gateway = limited(&api, "client_concurrency = 2\n");
    api.behave("/held", Behaviour::Hold);
    let mut client = open_from(7, gateway.proxy);
    write(&mut client, 1, "/held");
    api.wait_for(1);
    write(&mut client, 3, "/other");
    assert_eq!(client.end_of(3), done());
    // What was forwarded goes on without its client, and counts.
    reset(&mut client, 1);
    exchange_ping(&mut client);
    client.put(5, "/held", &[("fencing-token", "1")], b"x");
    api.wait_for(3);
    write(&mut client, 7, "/other");
    assert_eq!(client.end_of(7).code(), "overloaded");
    assert_overloaded(&connect_from(7, gateway.proxy).write(put("/other")).read());
    assert_eq!(connect_from(8, gateway.proxy).write(put("/other")).read().status, 200);
    api.let_go("/held");
    api.let_go("/held");
    assert_eq!(client.end_of(5), done());
    wait_until("both are over", || {
        connect_from(7, gateway.proxy).write(put("/other")).read().status == 200
    });
    assert_eq!(hits(&gateway, "limits.client_concurrency"), 2);
}

#[test]
fn a_rate_is_the_client_s_and_not_the_connection_s() {
    let api = Downstream::start();
    let gateway = limited(&api, "client_rate = \"4/m\"\n");
    let mut client = open_from(7, gateway.proxy);
    for stream in [1, 3, 5] {
        write(&mut client, stream, "/x");
        assert_eq!(client.end_of(stream), done());
    }
    assert_eq!(connect_from(7, gateway.proxy).write(put("/x")).read().status, 200);
    write(&mut client, 7, "/x");
    assert_eq!(client.end_of(7).code(), "overloaded");
    assert_eq!((api.seen().len(), hits(&gateway, "limits.client_rate")), (4, 1));
}

/// Reads until the connection says that it ends, and gives the last stream that it has heard of.
fn last_stream(client: &mut H2) -> u32 {
    loop {
        let bye = client.read_until(|frame| frame.kind == GOAWAY).expect("it says goodbye");
        let (last, code) = bye.payload.split_at(4);
        assert_eq!(code[..4], [0; 4], "it is no error");
        let last = u32::from_be_bytes(last.try_into().expect("four bytes"));
        // A first one says only that there will be another.
        if last < i32::MAX as u32 {
            return last;
        }
    }
}

#[test]
fn the_last_request_of_a_connection_and_those_before_it_are_answered() {
    let api = Downstream::start();
    let gateway = limited(&api, "keep_alive_requests = 3\n");
    api.behave("/held", Behaviour::Hold);
    let mut client = H2::open(gateway.proxy);
    write(&mut client, 1, "/held");
    api.wait_for(1);
    for stream in [3, 5] {
        write(&mut client, stream, "/x");
    }
    assert_eq!(last_stream(&mut client), 5);
    // Too late, as the client knows by now.
    write(&mut client, 7, "/late");
    api.let_go("/held");
    assert_eq!(client.end_of(1), done());
    assert_eq!(client.end_of(7), End::Closed);
    assert_eq!((api.tokens("/x").len(), api.tokens("/late").len()), (2, 0));
    assert!(is_served(&gateway));
}

#[test]
fn an_old_connection_takes_no_further_request_but_the_next() {
    let api = Downstream::start();
    let gateway = limited(&api, "keep_alive_age = \"200ms\"\nidle_timeout = \"20s\"\n");
    let mut client = H2::open(gateway.proxy);
    let goes_on = |client: &mut H2| {
        let is_answer =
            |frame: &Frame| frame.kind == GOAWAY || frame.kind == PING && frame.has(ACK);
        client.0.write_all(&frame(PING, 0, 0, &[7; 8])).is_ok()
            && client.read_until(is_answer).is_ok_and(|frame| frame.kind == PING)
    };
    let mut answered = 0;
    for stream in (1..).step_by(2) {
        write(&mut client, stream, "/x");
        assert_eq!(client.end_of(stream), done(), "no request is lost");
        answered += 1;
        if !goes_on(&mut client) {
            break;
        }
    }
    assert_eq!(client.end_of(u32::MAX), End::Closed);
    assert_eq!(api.seen().len(), answered);
}

#[test]
fn a_connection_without_requests_is_closed_when_it_rests_too_long() {
    let api = Downstream::start();
    let gateway = limited(&api, "idle_timeout = \"300ms\"\n");
    let mut client = H2::open(gateway.proxy);
    write(&mut client, 1, "/x");
    assert_eq!(client.end_of(1), done());
    assert_eq!(client.end_of(3), End::Closed);
}

#[test]
fn streams_beyond_the_limit_are_refused_and_never_reach_the_api() {
    let api = Downstream::start();
    let gateway = limited(&api, "streams = 3\n");
    api.behave("/held", Behaviour::Hold);
    let mut client = H2::open(gateway.proxy);
    let settings = client
        .read_until(|frame| frame.kind == SETTINGS && !frame.has(ACK))
        .expect("it says its settings");
    let offered = settings.payload.chunks(6).find_map(|setting| {
        let value = u32::from_be_bytes(setting[2..6].try_into().ok()?);
        (setting[..2] == MAX_CONCURRENT_STREAMS.to_be_bytes()).then_some(value)
    });
    assert_eq!(offered, Some(3));
    for stream in [1, 3, 5] {
        write(&mut client, stream, "/held");
    }
    api.wait_for(3);
    write(&mut client, 7, "/held");
    let refused = client
        .read_until(|frame| frame.stream == 7 && frame.kind == RST_STREAM)
        .expect("the stream is refused");
    assert_eq!(refused.payload, REFUSED_STREAM.to_be_bytes());
    for _ in 0..3 {
        api.let_go("/held");
    }
    assert_eq!(client.end_of(5), done());
    write(&mut client, 9, "/x");
    assert_eq!(client.end_of(9), done());
    assert_eq!(api.seen().len(), 4);
}

/// CVE-2023-44487, with the limit that is configured.
#[test]
fn a_client_that_resets_more_than_it_may_loses_its_connection_and_reaches_the_api_no_more() {
    let api = Downstream::start();
    let gateway = limited(&api, "h2_resets = 5\n");
    api.behave("/held", Behaviour::Hold);
    let mut client = H2::open(gateway.proxy);
    let mut streams = (1..).step_by(2);
    let reset_one = |client: &mut H2, streams: &mut dyn Iterator<Item = u32>| {
        let (stream, seen) = (streams.next().expect("endless"), api.seen().len());
        write(client, stream, "/held");
        api.wait_for(seen + 1);
        reset(client, stream);
        seen + 1
    };
    // Each that is answered makes up for one that is reset.
    for _ in 0..20 {
        reset_one(&mut client, &mut streams);
        let stream = streams.next().expect("endless");
        write(&mut client, stream, "/x");
        assert_eq!(client.end_of(stream), done());
    }
    for _ in 0..5 {
        reset_one(&mut client, &mut streams);
    }
    exchange_ping(&mut client);
    let forwarded = reset_one(&mut client, &mut streams);
    assert_eq!(client.end_of(u32::MAX), End::Closed);
    // Refused by the socket or not: nobody reads it.
    let late = frame(HEADERS, END_HEADERS | END_STREAM, 1001, &fields(&[(":path", "/late")]));
    let _ = client.0.write_all(&late);
    assert!(is_served(&gateway));
    assert_eq!(api.seen().len(), forwarded + 1, "nothing came after that but of others");
    wait_until("it is on record", || {
        gateway.log().iter().any(|line| {
            line["message"].as_str().is_some_and(|text| text.contains("reset too many requests"))
        })
    });
}

#[test]
fn a_burst_of_resets_costs_the_api_no_more_than_may_be_open_and_be_reset() {
    const STREAMS: u32 = 10;
    const RESETS: u32 = 5;
    let api = Downstream::start();
    let gateway = limited(&api, &format!("h2_resets = {RESETS}\nstreams = {STREAMS}\n"));
    api.behave("/held", Behaviour::Hold);
    let head = fields(&[
        (":method", "PUT"),
        (":scheme", "http"),
        (":authority", "test"),
        (":path", "/held"),
        ("fencing-token", "1"),
    ]);
    let pair = |stream| {
        let begin = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
        [begin, frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat()
    };
    let mut streams = (1..).step_by(2);
    let mut pairs = |count| -> Vec<u8> { streams.by_ref().take(count).flat_map(pair).collect() };
    let cost = |burst: &mut dyn FnMut(&mut H2)| {
        let before = api.seen().len();
        let mut client = H2::open(gateway.proxy);
        burst(&mut client);
        assert_eq!(client.end_of(u32::MAX), End::Closed);
        assert!(is_served(&gateway));
        let cost = api.seen().len() - before - 1;
        assert!(cost <= usize::try_from(STREAMS + RESETS + 1).expect("few"), "{cost}");
    };
    // Reset before anybody looked at them.
    cost(&mut |client| {
        let _ = client.0.write_all(&pairs(5000));
    });
    // Looked at, a few at a time.
    cost(&mut |client| {
        for _ in 0..100 {
            let is_pong = |frame: &Frame| frame.kind == PING && frame.has(ACK);
            let bytes = [pairs(8), frame(PING, 0, 0, &[7; 8])].concat();
            if client.0.write_all(&bytes).is_err() || client.read_until(is_pong).is_err() {
                return;
            }
        }
        panic!("800 resets, and the connection is open");
    });
}
