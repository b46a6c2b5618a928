//! HTTP/2 frame by frame, for a client or an upstream that does what no library would.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::SOON;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Fields as HPACK has them without any table or Huffman code.
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// An integer with a prefix of 7 bits (RFC 7541 §5.1).
fn length(block: &mut Vec<u8>, length: usize) {
    if let Some(short) = u8::try_from(length).ok().filter(|short| *short < 127) {
        return block.push(short);
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).expect("below 128") | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("below 128"));
}

/// One end of a connection.
pub struct H2(pub TcpStream);

impl H2 {
    /// A client that said what it has to say at the beginning.
    pub fn open(to: SocketAddr) -> H2 {
        H2::open_with(to, &[])
    }

    /// The same with settings.
    pub fn open_with(to: SocketAddr, settings: &[(u16, u32)]) -> H2 {
        let stream = TcpStream::connect(to).expect("the listener listens");
        let mut h2 = H2::over(stream);
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        h2.write([PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat());
        h2
    }

    pub fn over(stream: TcpStream) -> H2 {
        stream.set_read_timeout(Some(SOON)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        H2(stream)
    }

    /// An upstream's end: reads the preface, and says its settings.
    pub fn accept(stream: TcpStream, settings: &[u8]) -> io::Result<H2> {
        let mut h2 = H2::over(stream);
        let mut preface = [0; 24];
        h2.0.read_exact(&mut preface)?;
        assert_eq!(preface, PREFACE);
        h2.0.write_all(&frame(SETTINGS, 0, 0, settings))?;
        Ok(h2)
    }

    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> &mut H2 {
        self.0.write_all(bytes.as_ref()).expect("the peer reads");
        self
    }

    /// A request with these fields beside the pseudo-fields of a PUT of `path`.
    pub fn put(&mut self, stream: u32, path: &str, more: &[(&str, &str)], body: &[u8]) {
        let pseudo =
            [(":method", "PUT"), (":scheme", "http"), (":authority", "test"), (":path", path)];
        let head = fields(&[&pseudo, more].concat());
        self.write(frame(HEADERS, END_HEADERS, stream, &head));
        self.write(frame(DATA, END_STREAM, stream, body));
    }

    pub fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        Ok(Frame { kind, flags, stream, payload })
    }

    /// Reads until a frame of this kind comes, and answers settings and pings on the way.
    pub fn read_until(&mut self, wanted: impl Fn(&Frame) -> bool) -> io::Result<Frame> {
        loop {
            let frame = self.read()?;
            if wanted(&frame) {
                return Ok(frame);
            }
            if matches!(frame.kind, SETTINGS | PING) && !frame.has(ACK) {
                let payload: &[u8] = if frame.kind == PING { &frame.payload } else { &[] };
                self.0.write_all(&self::frame(frame.kind, ACK, 0, payload))?;
            }
        }
    }

    /// What became of a stream.
    pub fn end_of(&mut self, stream: u32) -> End {
        let mut body = Vec::new();
        loop {
            let is_its = |frame: &Frame| frame.stream == stream || frame.kind == GOAWAY;
            let Ok(frame) = self.read_until(is_its) else { return End::Closed };
            match frame.kind {
                GOAWAY => {
                    // A gentle one is followed by the answer.
                    if frame.payload[4..8] != [0; 4] {
                        return End::Closed;
                    }
                    continue;
                }
                RST_STREAM => return End::Reset,
                DATA => body.extend_from_slice(&frame.payload),
                _ => {}
            }
            if frame.has(END_STREAM) {
                return End::Answered(String::from_utf8_lossy(&body).into_owned());
            }
        }
    }
}

/// See [`H2::end_of`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this body.
    Answered(String),
    Reset,
    /// The connection ended.
    Closed,
}

impl End {
    /// The code of a problem document.
    pub fn code(&self) -> String {
        let End::Answered(body) = self else { return format!("{self:?}") };
        let document: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        document["code"].as_str().unwrap_or(body).to_owned()
    }
}
