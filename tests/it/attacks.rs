//! Public bugs of proxies and servers, tried on the gateway: one row for each, with its number where it has one.
//!
//! Each row is bytes on a socket, and says how each request in them is answered. What is refused must not reach the
//! upstream with a single byte; what goes on reaches it once, as what it was judged to be. The same rows run against a
//! recorder of raw bytes and against nginx.
//!
//! HTTP/2 has bugs of its own, which need frames and not rows of text (CVE-2023-44487, rapid reset): they are tested
//! where HTTP/2 is.

mod recorder;
mod rows;

use self::recorder::Recorder;
use self::rows::{Expected, Row, rows};
use crate::support::gateway::Gateway;
use crate::support::http::{Connection, assert_problem};
use crate::support::nginx::Nginx;
use crate::support::wait_until;

/// A read that must be answered by itself, if the connection is still open after a row.
const SENTINEL: &str = "GET /sentinel HTTP/1.1\r\nHost: test\r\n\r\n";

/// Sends a row's bytes with `token`, and checks its answers: all of them, and no more.
fn run(gateway: &Gateway, row: &Row, token: usize) {
    let what = format!("{}: {}", row.id, row.what);
    let mut client = Connection::open(gateway.proxy);
    client.write(row.bytes.replace("{t}", &token.to_string()));
    for expected in &row.answers {
        let answer = client.try_read().unwrap_or_else(|error| panic!("{what}: {error}"));
        match expected {
            Expected::Refused(status, code) => {
                assert_eq!(answer.status, *status, "{what}: {answer:?}");
                assert_problem(&answer, *status, code, "not_forwarded");
            }
            Expected::Done(..) => {
                assert!((200..300).contains(&answer.status), "{what}: {answer:?}");
            }
        }
    }
    if client
        .try_exchange(SENTINEL)
        .is_ok_and(|answer| answer.header("content-type") == Some("application/problem+json"))
    {
        panic!("{what}: there was one more answer");
    }
}

/// What a row must have written: resources and contents.
fn written(row: &Row) -> Vec<Write> {
    let done = row.answers.iter().filter_map(|expected| match expected {
        Expected::Done(resource, content) => {
            Some(((*resource).to_owned(), content.as_bytes().to_vec()))
        }
        Expected::Refused(..) => None,
    });
    done.collect()
}

#[test]
fn no_byte_of_an_attack_reaches_the_upstream() {
    let upstream = Recorder::start();
    let gateway = Gateway::ordered(upstream.address, "");
    for (nth, row) in rows().iter().enumerate() {
        let before = upstream.requests().len();
        run(&gateway, row, nth + 1);
        let requests = upstream.requests().split_off(before);
        let seen: Vec<_> = requests
            .iter()
            .filter(|request| request.target != "/sentinel")
            .map(|request| (request.target.clone(), request.body.clone()))
            .collect();
        let forwarded: Vec<_> = written(row);
        let what = format!("{}: {}", row.id, row.what);
        assert_eq!(seen.len(), forwarded.len(), "{what}: {seen:?}");
        assert!(
            seen.iter().zip(&forwarded).all(|(seen, expected)| is_same(seen, expected)),
            "{what}: {seen:?}, not {forwarded:?}"
        );
    }
    assert!(upstream.rest().is_empty(), "all bytes belong to requests: {:?}", upstream.rest());
}

/// A write: to what, and with what content.
type Write = (String, Vec<u8>);

/// The recorder has the target as it came, the row the name of its resource.
fn is_same(seen: &Write, expected: &Write) -> bool {
    let path = percent_encoding::percent_decode_str(path(&seen.0));
    seen.1 == expected.1 && path.eq(expected.0.bytes())
}

fn path(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

#[test]
fn nginx_serves_what_the_gateway_judged() {
    let nginx = Nginx::start();
    let gateway = Gateway::ordered(nginx.address, "");
    let mut targets = 0;
    for (nth, row) in rows().iter().enumerate() {
        nginx.clear();
        run(&gateway, row, nth + 1);
        assert_eq!(nginx.stored(), written(row), "{}: {}", row.id, row.what);
        targets += written(row).len();
    }
    let writes = || nginx.accesses().iter().filter(|access| access.target != "/sentinel").count();
    wait_until("nginx has logged", || writes() >= targets);
    assert_eq!(writes(), targets, "{:?}", nginx.accesses());
}

/// The page for users names each bug that has a number.
#[test]
fn the_page_on_targets_and_framing_lists_every_row() {
    let page = include_str!("../../docs/targets.md");
    for row in rows().iter().filter(|row| !row.id.starts_with("no number")) {
        assert!(page.contains(row.id), "docs/targets.md lacks {}", row.id);
    }
}
