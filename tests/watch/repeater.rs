//! Says again what a gateway says, so that thirty scrapes cost the gateway no more than one.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::http::{Connection, request};

/// How old a scrape may be that is said again.
const FRESH: Duration = Duration::from_millis(1500);

/// What Prometheus asks for before all else: bounds of buckets are written in another way there.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

struct Said {
    at: Instant,
    /// `None` if the gateway did not answer.
    text: Option<Vec<u8>>,
}

/// Listens for scrapes, and passes on those of `gateway`. It ends with the process.
pub fn repeat(gateway: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let last: Arc<Mutex<Option<Said>>> = Arc::default();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let last = Arc::clone(&last);
            thread::spawn(move || serve(&stream, gateway, &last));
        }
    });
    address
}

/// Answers each request of a connection; what it asks for does not matter.
fn serve(stream: &TcpStream, gateway: SocketAddr, last: &Mutex<Option<Said>>) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    loop {
        while !lines.next()?.ok()?.is_empty() {}
        let text = scrape(gateway, last);
        let (status, body) = text.map_or(("503 None", Vec::new()), |text| ("200 OK", text));
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {FORMAT}\r\nContent-Length: {length}\r\n\r\n"
        );
        let mut stream = stream;
        stream.write_all(&[head.into_bytes(), body].concat()).ok()?;
    }
}

fn scrape(gateway: SocketAddr, last: &Mutex<Option<Said>>) -> Option<Vec<u8>> {
    let mut last = last.lock().expect("no panic in there");
    if let Some(said) = last.as_ref().filter(|said| said.at.elapsed() < FRESH) {
        return said.text.clone();
    }
    let text = ask(gateway);
    *last = Some(Said { at: Instant::now(), text: text.clone() });
    text
}

fn ask(gateway: SocketAddr) -> Option<Vec<u8>> {
    let mut connection = Connection::try_open(gateway).ok()?;
    connection.0.set_read_timeout(Some(FRESH)).ok()?;
    let answer =
        connection.try_exchange(request("GET", "/metrics", &[("Accept", FORMAT)], b"")).ok()?;
    (answer.status == 200).then_some(answer.body)
}
