//! Bytes of an older write that are still on their way when its answer is here, or when it is cut:
//! in the gateway's memory, and in its kernel's queue. A newer write must not overtake them.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::gateway::Gateway;
use crate::support::http::{Connection, request};

fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap() == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn gateway_to(address: std::net::SocketAddr, upstream: &str, route: &str) -> Gateway {
    Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{address}\"\n{upstream}\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n{route}"
    ))
}

/// The API answers before it has read the body, and reads on later. What fits into the kernel's
/// queue counts as sent (docs/guarantees.md); this body does not.
#[test]
fn an_early_answer_does_not_let_the_newer_write_overtake_the_rest_of_the_body() {
    let length = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    socket2::SockRef::from(&listener).set_recv_buffer_size(4096).unwrap();
    let address = listener.local_addr().unwrap();
    let gateway = gateway_to(
        address,
        "settle = \"20s\"\ntimeout = \"60s\"",
        "drain = \"20s\"\nwait = \"60s\"\nbuffer = \"64MiB\"\n",
    );
    let mut old = Connection::open(gateway.proxy);
    let write = request("PUT", "/x", &[("Fencing-Token", "1")], &vec![b'a'; length]);
    let mut sender = old.0.try_clone().unwrap();
    thread::spawn(move || {
        let _ = sender.write_all(&write);
    });
    let (mut first, _) = listener.accept().unwrap();
    assert!(head(&mut first).to_lowercase().contains("fencing-token: 1"));
    // Let the gateway write what it can: nobody reads.
    thread::sleep(Duration::from_secs(1));
    first.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(old.read().status, 200);
    thread::sleep(Duration::from_millis(300));
    let mut new = Connection::open(gateway.proxy);
    new.write(request("PUT", "/x", &[("Fencing-Token", "2")], b"new"));
    listener.set_nonblocking(true).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        assert!(listener.accept().is_err(), "the newer write overtook the rest of the older one");
        thread::sleep(Duration::from_millis(5));
    }

    let mut rest = vec![0; length];
    first.read_exact(&mut rest).unwrap();

    listener.set_nonblocking(false).unwrap();
    let (mut second, _) = listener.accept().unwrap();
    assert!(head(&mut second).to_lowercase().contains("fencing-token: 2"));
    second.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(new.read().status, 200);
}

#[test]
fn a_cut_throws_away_what_the_kernel_still_holds() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    socket2::SockRef::from(&listener).set_recv_buffer_size(4096).unwrap();
    let address = listener.local_addr().unwrap();
    let gateway = gateway_to(
        address,
        "settle = \"1s\"\ntimeout = \"60s\"",
        "drain = \"200ms\"\nwait = \"60s\"\n",
    );
    let length = 1_000_000;
    let mut old = Connection::open(gateway.proxy);
    let write = request("PUT", "/x", &[("Fencing-Token", "1")], &vec![b'a'; length]);
    old.write(write);
    let (mut first, _) = listener.accept().unwrap();
    head(&mut first);
    thread::sleep(Duration::from_millis(500));
    let mut new = Connection::open(gateway.proxy);
    new.write(request("PUT", "/x", &[("Fencing-Token", "2")], b"new"));
    let (mut second, _) = listener.accept().unwrap();
    head(&mut second);
    second.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(new.read().status, 200);
    first.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut got = 0;
    let mut chunk = [0; 65536];
    while let Ok(n) = first.read(&mut chunk) {
        if n == 0 {
            break;
        }
        got += n;
    }
    assert!(got < length, "the API got the whole older write although it was cut and settled");
}
