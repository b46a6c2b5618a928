//! An API that knows nothing of fencing. It records when each request began to reach it and when it
//! was over, and it can be told to be slow, silent or rude about a path.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::wait_until;

const DONE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndone\n";

/// What the API does about requests to a path.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Takes effect and answers 200 (the default).
    Answer,
    /// Reads the request, then waits for [`Downstream::let_go`], then answers 200.
    Hold,
    /// Reads the request and never answers.
    Silence,
    /// Reads the head only, then waits for [`Downstream::let_go`], then reads the rest and answers.
    HoldAfterHead,
    /// Closes the connection at once, with a reset.
    ResetBefore,
    /// Reads the request, then resets the connection without an answer.
    ResetInstead,
    /// Sends these bytes after the request, then resets the connection if `true`, keeps it if not.
    Say(Vec<u8>, bool),
    /// Answers 200 after the head, then waits for [`Downstream::let_go`] and reads the body.
    AnswerEarly,
    /// Answers 200 after the head, then closes the connection without reading the body.
    AnswerAndClose,
}

/// A request that reached the API.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The whole body was read.
    pub is_whole: bool,
    pub began: Instant,
    /// When the answer was written, or the connection was closed.
    pub ended: Option<Instant>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn token(&self) -> Option<u64> {
        self.header("fencing-token")?.parse().ok()
    }
}

#[derive(Default)]
struct State {
    behaviours: HashMap<String, Behaviour>,
    let_go: HashMap<String, usize>,
    seen: Vec<Seen>,
    connections: usize,
}

/// The API. It ends with the process: its threads hold nothing that outlives them.
#[derive(Clone)]
pub struct Downstream {
    pub address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Downstream {
    pub fn start() -> Downstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let downstream = Downstream { address, state: Arc::default() };
        let accepting = downstream.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let downstream = accepting.clone();
                thread::spawn(move || downstream.serve(&stream));
            }
        });
        downstream
    }

    /// Sets what happens to requests whose path (without query) is `path` from now on.
    pub fn behave(&self, path: &str, behaviour: Behaviour) {
        let mut state = self.state.0.lock().expect("no panic in there");
        state.behaviours.insert(path.to_owned(), behaviour);
    }

    /// Lets one held request of `path` go on.
    pub fn let_go(&self, path: &str) {
        *self.state.0.lock().expect("no panic").let_go.entry(path.to_owned()).or_default() += 1;
        self.state.1.notify_all();
    }

    /// Everything that began to reach the API, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.0.lock().expect("no panic in there").seen.clone()
    }

    /// Tokens of the requests to `path` that reached the API, in order.
    pub fn tokens(&self, path: &str) -> Vec<u64> {
        self.seen().iter().filter(|seen| seen.target == path).filter_map(Seen::token).collect()
    }

    /// How many connections were made to it.
    pub fn connections(&self) -> usize {
        self.state.0.lock().expect("no panic in there").connections
    }

    /// Waits until so many requests have begun to reach the API.
    #[track_caller]
    pub fn wait_for(&self, requests: usize) {
        wait_until("requests at the downstream", || self.seen().len() >= requests);
    }

    fn serve(&self, stream: &TcpStream) {
        self.state.0.lock().expect("no panic in there").connections += 1;
        let _ = stream.set_nodelay(true);
        let mut reader = BufReader::new(stream.try_clone().expect("a socket can be shared"));
        while self.serve_one(&mut reader, stream).is_some() {}
    }

    fn serve_one(&self, reader: &mut BufReader<TcpStream>, mut stream: &TcpStream) -> Option<()> {
        let seen = read_head(reader)?;
        let path = seen.target.split('?').next().unwrap_or_default().to_owned();
        let length = seen.header("content-length").and_then(|length| length.parse().ok());
        let is_chunked = seen.header("transfer-encoding").is_some();
        let (number, behaviour) = self.begin(seen, &path);
        if matches!(behaviour, Behaviour::ResetBefore) {
            return self.reset(number, stream);
        }
        match behaviour {
            Behaviour::HoldAfterHead => self.hold(&path),
            Behaviour::AnswerEarly | Behaviour::AnswerAndClose => {
                stream.write_all(DONE).ok()?;
                if matches!(behaviour, Behaviour::AnswerAndClose) {
                    return self.end(number);
                }
                self.hold(&path);
            }
            _ => {}
        }
        let body = if is_chunked { read_chunks(reader) } else { read_n(reader, length) };
        let is_whole = body.is_some();
        self.change(number, |seen| {
            seen.body = body.unwrap_or_default();
            seen.is_whole = is_whole;
        });
        if !is_whole {
            return self.end(number);
        }
        match behaviour {
            Behaviour::Silence => {
                // Until the other side gives up.
                let _ = reader.read(&mut [0]);
                return self.end(number);
            }
            Behaviour::ResetInstead => return self.reset(number, stream),
            Behaviour::Say(bytes, is_last) => {
                let _ = stream.write_all(&bytes);
                if is_last {
                    return self.reset(number, stream);
                }
                self.end(number);
                return Some(());
            }
            Behaviour::AnswerEarly => {
                self.end(number);
                return Some(());
            }
            Behaviour::Hold => self.hold(&path),
            Behaviour::Answer
            | Behaviour::HoldAfterHead
            | Behaviour::ResetBefore
            | Behaviour::AnswerAndClose => {}
        }
        // Over before the answer is out: whoever has the answer may begin the next one.
        self.end(number);
        stream.write_all(DONE).ok()
    }

    fn begin(&self, seen: Seen, path: &str) -> (usize, Behaviour) {
        let mut state = self.state.0.lock().expect("no panic in there");
        state.seen.push(seen);
        let behaviour = state.behaviours.get(path).cloned().unwrap_or(Behaviour::Answer);
        (state.seen.len() - 1, behaviour)
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.state.0.lock().expect("no panic in there").seen[number]);
    }

    fn end(&self, number: usize) -> Option<()> {
        self.change(number, |seen| seen.ended = Some(Instant::now()));
        None
    }

    fn reset(&self, number: usize, stream: &TcpStream) -> Option<()> {
        // Closing with unread or lingering data at zero sends a reset.
        let socket = socket2::SockRef::from(stream);
        let _ = socket.set_linger(Some(Duration::ZERO));
        self.end(number);
        None
    }

    fn hold(&self, path: &str) {
        let (state, changed) = &*self.state;
        let state = state.lock().expect("no panic in there");
        let is_held = |state: &mut State| state.let_go.get(path).is_none_or(|free| *free == 0);
        let mut state = changed.wait_while(state, is_held).expect("no panic in there");
        if let Some(free) = state.let_go.get_mut(path) {
            *free -= 1;
        }
    }
}

fn read_head(reader: &mut impl BufRead) -> Option<Seen> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let mut words = lines.first()?.split(' ');
    Some(Seen {
        method: words.next()?.to_owned(),
        target: words.next()?.to_owned(),
        headers: lines[1..]
            .iter()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect(),
        body: Vec::new(),
        is_whole: false,
        began: Instant::now(),
        ended: None,
    })
}

fn read_n(reader: &mut impl Read, length: Option<usize>) -> Option<Vec<u8>> {
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

fn read_chunks(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let size = usize::from_str_radix(line.trim(), 16).ok()?;
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(&chunk[..size]);
    }
}
