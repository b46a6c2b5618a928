//! A client that hides nothing: bytes out, bytes in.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::SOON;

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The `code` of a problem document; panics if the answer is none.
    #[track_caller]
    pub fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        problem["code"].as_str().expect("a problem has a code").to_owned()
    }

    /// The `code`, if the answer is a problem document.
    pub fn json_code(&self) -> Option<String> {
        let problem: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        problem["code"].as_str().map(str::to_owned)
    }

    /// The `outcome` of a problem document.
    #[track_caller]
    pub fn outcome(&self) -> String {
        self.json()["outcome"].as_str().expect("a problem has an outcome").to_owned()
    }
}

/// Expects a problem document with this status, code and outcome.
#[track_caller]
pub fn assert_problem(answer: &Answer, status: u16, code: &str, outcome: &str) {
    let got = (answer.status, answer.code(), answer.outcome());
    assert_eq!(got, (status, code.to_owned(), outcome.to_owned()), "{answer:?}");
}

/// A connection that stays open.
pub struct Connection(pub TcpStream);

impl Connection {
    pub fn open(to: SocketAddr) -> Connection {
        Connection::try_open(to).expect("the listener listens")
    }

    pub fn try_open(to: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.set_nodelay(true)?;
        Ok(Connection(stream))
    }

    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> &mut Connection {
        self.0.write_all(bytes.as_ref()).expect("the peer reads");
        self
    }

    /// Writes and reads where the peer may be gone at any moment.
    pub fn try_exchange(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<Answer> {
        self.0.write_all(bytes.as_ref())?;
        self.try_read()
    }

    /// Reads one answer; `Err` if the connection ends before it is whole.
    pub fn try_read(&mut self) -> io::Result<Answer> {
        loop {
            let answer = self.read_one()?;
            if answer.status >= 200 {
                return Ok(answer);
            }
        }
    }

    /// Reads one answer if it is there within a short while.
    pub fn try_read_now(&mut self) -> io::Result<Answer> {
        self.0.set_read_timeout(Some(Duration::from_millis(300)))?;
        let answer = self.try_read();
        self.0.set_read_timeout(Some(SOON))?;
        answer
    }

    #[track_caller]
    pub fn read(&mut self) -> Answer {
        self.try_read().expect("a whole answer")
    }

    /// Reads an answer that has no body whatever its head says, as to HEAD.
    #[track_caller]
    pub fn read_head(&mut self) -> Answer {
        self.head().expect("a whole head")
    }

    /// Whether the peer closed the connection without another byte.
    pub fn is_closed_by_peer(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }

    fn read_one(&mut self) -> io::Result<Answer> {
        let mut answer = self.head()?;
        answer.body = self.read_body(&answer)?;
        Ok(answer)
    }

    fn head(&mut self) -> io::Result<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.byte()?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status: {head:?}")))?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect();
        Ok(Answer { status, headers, body: Vec::new() })
    }

    fn read_body(&mut self, answer: &Answer) -> io::Result<Vec<u8>> {
        if answer.status < 200 || answer.status == 204 || answer.status == 304 {
            return Ok(Vec::new());
        }
        if answer.header("transfer-encoding").is_some() {
            return self.read_chunks();
        }
        let mut body = Vec::new();
        match answer.header("content-length").and_then(|length| length.parse().ok()) {
            Some(length) => {
                body.resize(length, 0);
                self.0.read_exact(&mut body)?;
            }
            None => {
                self.0.read_to_end(&mut body)?;
            }
        }
        Ok(body)
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(self.byte()?);
            }
            let size = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size + 2];
            self.0.read_exact(&mut chunk)?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.0.read_exact(&mut byte)?;
        Ok(byte[0])
    }
}

/// The bytes of a request with a body of known length.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").expect("a String takes all");
    }
    write!(head, "Content-Length: {}\r\n\r\n", body.len()).expect("a String takes all");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// The bytes of a request whose target may be any bytes; each of `fields` ends its line.
pub fn raw(method: &str, target: &[u8], fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let rest = format!(" HTTP/1.1\r\nHost: test\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
    [method.as_bytes(), b" ", target, rest.as_bytes()].concat()
}

/// The head of a fenced PUT without what says how long its body is.
pub fn put_head(token: u64) -> String {
    format!("PUT /x HTTP/1.1\r\nHost: test\r\nFencing-Token: {token}\r\n")
}

/// Bytes in which a lost or doubled piece would be seen.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 31 % 251).expect("below 251")).collect()
}

/// Sends bytes on a connection of their own, and reads the answer.
#[track_caller]
pub fn exchange(to: SocketAddr, bytes: impl AsRef<[u8]>) -> Answer {
    Connection::open(to).write(bytes).read()
}

/// Sends a request, and reads the answer.
#[track_caller]
pub fn send(
    to: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    exchange(to, request(method, target, headers, body))
}
