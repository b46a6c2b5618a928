//! Clients send what they like; the number of series stays what the configuration makes it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use super::*;
use crate::support::SOON;
use crate::support::downstream::Downstream;

/// Requests of which each has a path, a resource, a method, a token, a header value and a trace of its own.
const REQUESTS: u64 = 100_000;
/// Of those, so many go through the store, as writes of new resources.
const RAISES: u64 = 5_000;
/// Leases, each with a resource and an owner of its own, a commit each.
const OWNERS: u64 = 2_000;
const CONNECTIONS: u64 = 8;
/// Sent at once, before their answers are read.
const TOGETHER: u64 = 50;

#[test]
fn a_hundred_thousand_resources_owners_paths_and_methods_make_no_series() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\n\
         [[route]]\nname = \"held\"\npath = \"/held/{{*rest}}\"\n\
         [[route]]\nname = \"ordered\"\npath = \"/ordered/{{*rest}}\"\ntokens = \"ordered\"\n",
        api.address
    ));
    wait_until_counted(&gateway);
    let before = scrape(&gateway);

    thread::scope(|scope| {
        for client in 0..CONNECTIONS {
            let (proxy, leases) = (gateway.proxy, gateway.leases);
            let numbers = move |all: u64| (client..all).step_by(CONNECTIONS as usize);
            scope.spawn(move || exchange_all(proxy, numbers(REQUESTS).map(write)));
            scope.spawn(move || exchange_all(leases, numbers(OWNERS).map(acquisition)));
        }
    });

    let after = scrape(&gateway);
    let names = |scrape: &Scrape| scrape.series.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after));
    let sum = |name: &str| -> f64 {
        let of_name = after.series.iter().filter(|(series, _)| series.starts_with(name));
        of_name.map(|(_, value)| value).sum()
    };
    assert_eq!(sum("fencegate_requests_total{"), REQUESTS as f64);
    assert_eq!(sum("fencegate_raises_total"), RAISES as f64);
    assert_eq!(sum("fencegate_leases_acquired_total"), OWNERS as f64);
    assert_eq!(sum("fencegate_rejections_total{"), (REQUESTS - RAISES) as f64);
}

fn wait_until_counted(gateway: &Gateway) {
    crate::support::wait_until("leases were counted once", || {
        scrape(gateway).types.contains_key("fencegate_leases_held")
    });
}

/// No two alike in anything that a client can choose.
fn write(number: u64) -> Vec<u8> {
    let kind = number % (REQUESTS / RAISES);
    let mut path = match kind {
        0 => format!("/ordered/{number}"),
        nth if nth % 3 == 0 => format!("/held/{number}"),
        nth if nth % 3 == 1 => format!("/nowhere/{number}"),
        // One that has more than one reading.
        _ => format!("/held/%2e%2e/{number}"),
    };
    let token = match kind {
        4 => format!("0{number}"),
        nth if nth % 3 == 0 && nth > 0 => format!("x{number}"),
        _ => (number + 1).to_string(),
    };
    if kind == 5 {
        write!(path, "?query={number}").expect("a String takes all");
    }
    format!(
        "M{number} {path} HTTP/1.1\r\nHost: host-{number}\r\nFencing-Token: {token}\r\n\
         X-Custom: value-{number}\r\nUser-Agent: agent-{number}\r\n\
         traceparent: 00-{:032x}-{:016x}-01\r\nContent-Length: 1\r\n\r\nx",
        number + 1,
        number + 1
    )
    .into_bytes()
}

fn acquisition(number: u64) -> Vec<u8> {
    let body = format!("{{\"owner\":\"owner-{number}\",\"ttl_ms\":600000}}");
    format!(
        "POST /v1/leases/r{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends all on one connection, and reads every answer.
fn exchange_all(to: SocketAddr, requests: impl Iterator<Item = Vec<u8>>) {
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(SOON)).expect("a socket");
    let mut answers = BufReader::new(stream.try_clone().expect("a socket can be shared"));
    let mut requests = requests.peekable();
    while requests.peek().is_some() {
        let mut bytes = Vec::new();
        let mut sent = 0;
        for request in requests.by_ref().take(TOGETHER as usize) {
            bytes.extend(request);
            sent += 1;
        }
        stream.write_all(&bytes).expect("it reads");
        for _ in 0..sent {
            read_answer(&mut answers);
        }
    }
}

fn read_answer(answers: &mut BufReader<TcpStream>) {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        assert!(answers.read_line(&mut line).expect("an answer") > 0, "closed before its time");
        if line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().expect("a number");
        }
    }
    std::io::copy(&mut answers.by_ref().take(length), &mut std::io::sink()).expect("a body");
}
