//! An upstream that keeps every byte it gets, and answers each request that it can make out of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A request, as the gateway wrote it.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub target: String,
    pub body: Vec<u8>,
}

#[derive(Default)]
struct Record {
    requests: Vec<Recorded>,
    /// By connection: bytes that belong to no whole request.
    rest: Vec<Vec<u8>>,
}

#[derive(Clone)]
pub struct Recorder {
    pub address: SocketAddr,
    record: Arc<Mutex<Record>>,
}

impl Recorder {
    pub fn start() -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let recorder = Recorder { address, record: Arc::default() };
        let accepting = recorder.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let recorder = accepting.clone();
                thread::spawn(move || recorder.serve(stream));
            }
        });
        recorder
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.record.lock().expect("no panic in there").requests.clone()
    }

    /// Bytes that belong to no whole request.
    pub fn rest(&self) -> Vec<u8> {
        self.record.lock().expect("no panic in there").rest.concat()
    }

    fn serve(&self, mut stream: TcpStream) {
        let connection = {
            let mut record = self.record.lock().expect("no panic in there");
            record.rest.push(Vec::new());
            record.rest.len() - 1
        };
        let mut bytes = [0; 65_536];
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            let mut answers = 0;
            {
                let mut record = self.record.lock().expect("no panic in there");
                let mut rest = std::mem::take(&mut record.rest[connection]);
                rest.extend_from_slice(&bytes[..length]);
                while let Some((request, length)) = request(&rest) {
                    rest.drain(..length);
                    record.requests.push(request);
                    answers += 1;
                }
                record.rest[connection] = rest;
            }
            if stream.write_all(&OK.repeat(answers)).is_err() {
                return;
            }
        }
    }
}

/// The first request among `bytes`, and how many of them it is.
fn request(bytes: &[u8]) -> Option<(Recorded, usize)> {
    let end = find(bytes, b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let target = head.split(' ').nth(1)?.to_owned();
    let lower = head.to_ascii_lowercase();
    if lower.contains("\r\ntransfer-encoding:") {
        return chunks(&bytes[end..])
            .map(|(body, length)| (Recorded { target, body }, end + length));
    }
    let length = lower.split("\r\ncontent-length:").nth(1).and_then(|rest| rest.lines().next());
    let length = length.map_or(Some(0), |length| length.trim().parse().ok())?;
    let body = bytes.get(end..end + length)?.to_vec();
    Some((Recorded { target, body }, end + length))
}

fn chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = find(&bytes[at..], b"\r\n")?;
        let size =
            usize::from_str_radix(std::str::from_utf8(&bytes[at..at + line]).ok()?, 16).ok()?;
        at += line + 2;
        body.extend_from_slice(bytes.get(at..at + size)?);
        at += size;
        (bytes.get(at..at + 2)? == b"\r\n").then_some(())?;
        at += 2;
        if size == 0 {
            return Some((body, at));
        }
    }
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}
