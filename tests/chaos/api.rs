//! The API: slow at random, at times rude, and it records each write's begin, effect and end. A process of
//! its own, which nothing befalls.
//!
//! It keeps its word about settling as a sane API does: what was sent takes effect within [`LATEST`], and not
//! at all once its connection is gone. It knows nothing of fencing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::chance::Chance;
use super::process::{Part, Process};
use super::record::{Event, Record};
use super::wait_until;

/// The longest that it works on a write, before and after the effect together.
pub const SLOWEST: Duration = Duration::from_millis(1000);
/// A write that did not take effect so long after it was read is dropped.
const LATEST: Duration = Duration::from_millis(1500);

const DONE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndone\n";
const TOO_LATE: &[u8] = b"HTTP/1.1 500 Too Late\r\nContent-Length: 5\r\n\r\nlate\n";

/// The API as its starter sees it.
pub struct Api {
    pub address: SocketAddr,
    _process: Process,
}

impl Api {
    pub fn start(dir: &Path, seed: u64) -> Api {
        Record::create(dir);
        let mut command = Command::new("setpriv");
        Part::Api.of(command.args(["--pdeathsig", "KILL"]), dir);
        command.env("CHAOS_SEED", seed.to_string());
        let process = Process::spawn(&mut command, &dir.join("api.log"));
        let mut address = None;
        wait_until("the API listens", || {
            let text = fs::read_to_string(dir.join("api.address")).unwrap_or_default();
            address = text.trim_end_matches('\n').parse().ok().filter(|_| text.ends_with('\n'));
            address.is_some()
        });
        Api { address: address.expect("waited for"), _process: process }
    }
}

/// The API's own process.
pub fn main(dir: &Path, seed: u64) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let api = Server {
        record: Mutex::new(Record::append(dir)),
        began: Instant::now(),
        requests: AtomicU64::new(0),
        chance: Mutex::new(Chance::new(seed)),
    };
    fs::write(dir.join("api.address"), format!("{address}\n")).expect("a writable directory");
    thread::scope(|scope| {
        for stream in listener.incoming().flatten() {
            let api = &api;
            scope.spawn(move || api.serve(&stream));
        }
    });
}

struct Server {
    record: Mutex<File>,
    began: Instant,
    requests: AtomicU64,
    chance: Mutex<Chance>,
}

/// What the API makes of a write.
struct Mood {
    before_effect: Duration,
    after_effect: Duration,
    drops_it: bool,
    /// Resets the connection instead of answering.
    is_rude: bool,
}

impl Server {
    fn serve(&self, stream: &TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut reader = BufReader::new(stream.try_clone().expect("a socket can be shared"));
        while self.serve_one(&mut reader, stream).is_some() {}
    }

    /// `None`: the connection is over.
    fn serve_one(&self, reader: &mut BufReader<TcpStream>, mut stream: &TcpStream) -> Option<()> {
        let write = Sent::read(reader)?;
        let read_at = Instant::now();
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let Sent { resource, token, name } = &write;
        self.note(number, Event::Begin { resource, token, name });
        let mood = self.mood();
        thread::sleep(mood.before_effect);
        if read_at.elapsed() > LATEST {
            self.note(number, Event::End("late"));
            return stream.write_all(TOO_LATE).ok();
        }
        if mood.drops_it || is_gone(stream) {
            self.note(number, Event::End("dropped"));
            return reset(stream);
        }
        self.note(number, Event::Effect);
        thread::sleep(mood.after_effect);
        // It is over before the answer is out: whoever has the answer may begin the next one.
        if mood.is_rude {
            self.note(number, Event::End("unanswered"));
            return reset(stream);
        }
        self.note(number, Event::End("answered"));
        stream.write_all(DONE).ok()
    }

    fn mood(&self) -> Mood {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        // Slow enough that a newer token often comes while a write is under way.
        let most = match chance.below(10) {
            0..2 => SLOWEST,
            2..6 => SLOWEST / 4,
            _ => Duration::from_millis(20),
        };
        let whole = most.mul_f64(chance.fraction());
        let before_effect = whole.mul_f64(chance.fraction());
        Mood {
            before_effect,
            after_effect: whole.saturating_sub(before_effect),
            drops_it: chance.one_in(100),
            is_rude: chance.one_in(100),
        }
    }

    /// One lock for the clock and the line, so that lines are in the order of their times.
    fn note(&self, number: u64, event: Event<'_>) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = self.began.elapsed().as_secs_f64();
        let line = format!("{seconds:.6} {number} {event}\n");
        record.write_all(line.as_bytes()).expect("room on the disk");
    }
}

/// A whole request.
struct Sent {
    resource: String,
    token: String,
    name: String,
}

impl Sent {
    fn read(reader: &mut impl BufRead) -> Option<Sent> {
        let (mut resource, mut token, mut length) = (None, None, 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            match (&resource, line.split_once(':')) {
                (None, _) => resource = Some(line.split(' ').nth(1)?.to_owned()),
                (Some(_), None) => break,
                (Some(_), Some((field, value))) => match &*field.to_ascii_lowercase() {
                    "fencing-token" => token = Some(value.trim().to_owned()),
                    "content-length" => length = value.trim().parse().ok()?,
                    _ => {}
                },
            }
        }
        let mut name = vec![0; length];
        reader.read_exact(&mut name).ok()?;
        let name = String::from_utf8(name).ok().filter(|name| !name.is_empty());
        let (token, name) =
            (token.unwrap_or_else(|| "-".into()), name.unwrap_or_else(|| "-".into()));
        Some(Sent { resource: resource?, token, name })
    }
}

/// Whether whoever sent the request has closed or reset its connection.
fn is_gone(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    let next = stream.peek(&mut [0]);
    let _ = stream.set_nonblocking(false);
    match next {
        Ok(length) => length == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn reset(stream: &TcpStream) -> Option<()> {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
    None
}
