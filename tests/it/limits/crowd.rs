//! A crowd of clients that rest, trickle, or do not read: what it costs, and whether others are served.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

use super::{config, put};
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::Connection;
use crate::support::wait_until;

const RESTING: usize = 5_000;
/// Of each kind.
const SLOW: usize = 250;
const NOT_READING: usize = 50;
/// More than all kernel buffers on the way hold.
const BIG: usize = 32 << 20;
/// For each that rests, and for each that is slow, with room: it has a buffer or two, and what the route buffers.
const RESTING_BYTES: usize = 48 * 1024;
const SLOW_BYTES: usize = 192 * 1024;
const NOT_READING_BYTES: usize = 1024 * 1024;

fn resident_bytes(pid: Pid) -> usize {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux has it");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

fn raise_own_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    raised.expect("the hard limit on open files is one's own");
    assert!(
        maximum.is_none_or(|most| most > 12_000),
        "the hard limit on open files is {maximum:?}"
    );
}

/// Connections on which `begin` was sent.
fn crowd(to: SocketAddr, count: usize, begin: &[u8]) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(to).expect("the listener listens");
        stream.write_all(begin).expect("it is read");
        stream.set_nonblocking(true).expect("a socket");
        stream
    };
    (0..count).map(open).collect()
}

fn is_open(mut stream: &TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_crowd_costs_bounded_memory_and_others_are_served() {
    raise_own_limit();
    let api = Downstream::start();
    let mut big = format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n").into_bytes();
    big.resize(big.len() + BIG, b'x');
    api.behave("/big", Behaviour::Say(big, false));
    let limits = "client_connections = 9000\nhead_timeout = \"10m\"\nbody_timeout = \"10m\"\nidle_timeout = \"10m\"\n";
    let mut gateway = Gateway::with_config(&config(&api, "", "", limits));
    let mut one = Connection::open(gateway.proxy);
    assert_eq!(one.write(put("/x")).read().status, 200);
    let at_first = resident_bytes(gateway.pid());
    let mut before = at_first;
    let mut cost = |what: &str, count: usize| {
        let now = resident_bytes(gateway.pid());
        let each = now.saturating_sub(before) / count;
        println!("{what}: {count} cost {each} bytes each; resident {} MiB", now >> 20);
        before = now;
        each
    };

    let resting = crowd(gateway.proxy, RESTING, b"");
    let connections = |count: usize| {
        let line = format!("\nfencegate_connections {count}\n");
        wait_until("all are connected", || {
            String::from_utf8_lossy(&gateway.admin("/metrics").body).contains(&line)
        });
    };
    connections(1 + RESTING);
    assert!(cost("resting", RESTING) < RESTING_BYTES);

    let head = b"PUT /slow HTTP/1.1\r\nHost: test\r\nFencing-Token: 1\r\nX-Slow: ";
    let heads = crowd(gateway.proxy, SLOW, head);
    let body =
        b"PUT /slow HTTP/1.1\r\nHost: test\r\nFencing-Token: 1\r\nContent-Length: 60000\r\n\r\n";
    let bodies = crowd(gateway.proxy, SLOW, body);
    connections(1 + RESTING + 2 * SLOW);
    // Each of them goes on by a few bytes at a time.
    for _ in 0..200 {
        for mut stream in heads.iter().chain(&bodies) {
            stream.write_all(b"slowly").expect("it is read");
        }
        let answer = one.write(put("/x")).read();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert!(cost("trickling", 2 * SLOW) < SLOW_BYTES);
    assert!(heads.iter().chain(&bodies).all(is_open));

    let get = b"GET /big HTTP/1.1\r\nHost: test\r\n\r\n";
    let not_reading = crowd(gateway.proxy, NOT_READING, get);
    wait_until("all are being answered", || {
        api.seen().iter().filter(|seen| seen.target == "/big").count() == NOT_READING
    });
    let mut sizes = Vec::new();
    wait_until("it takes no more from the API", || {
        sizes.push(resident_bytes(gateway.pid()));
        std::thread::sleep(Duration::from_millis(100));
        sizes.len() > 20
            && sizes
                .iter()
                .rev()
                .take(10)
                .all(|size| size.abs_diff(sizes[sizes.len() - 1]) < 1 << 20)
    });
    assert!(cost("not reading", NOT_READING) < NOT_READING_BYTES);

    let began = Instant::now();
    for number in 0..500 {
        let answer = one.write(put(&format!("/x/{number}"))).read();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    println!("500 writes of others took {:?}", began.elapsed());
    assert!(resting.iter().all(is_open));
    let wrong = api.seen().iter().filter(|seen| seen.target == "/slow").count();
    assert_eq!(wrong, 0, "nothing of what is not whole was forwarded");
    drop((resting, heads, bodies, not_reading));
    assert!(gateway.stop().success());
}
