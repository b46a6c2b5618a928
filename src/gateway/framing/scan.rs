//! Follows the bytes of a connection from head to body to next head. Pure: bytes in, verdict out.
//!
//! It never looks at a byte twice. A line that comes in pieces is kept until its end is here, within the bound for a
//! head; the usual head comes whole and is looked at where it lies.

use memchr::memchr;

use super::lines::Field;
use super::violation::Violation;
use super::{chunk, lines};

/// A longer line before a chunk is no honest one: sizes have up to 16 digits, and nobody sends extensions.
const CHUNK_LINE_BYTES: usize = 256;

/// See the module.
pub(super) struct Scan {
    state: State,
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
    /// What the present head has said so far.
    head: Head,
    /// Bytes of the present head or trailer section, in whole lines.
    section_bytes: usize,
    most_section_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a request line. Empty lines may come before it (RFC 9112 §2.2).
    RequestLine,
    Fields,
    /// So many bytes of a body are left.
    Body(u64),
    ChunkSize,
    /// So many bytes of a chunk are left.
    Chunk(u64),
    ChunkEnd,
    Trailers,
}

#[derive(Clone, Copy, Default)]
struct Head {
    is_http_11: bool,
    length: Option<u64>,
    is_chunked: bool,
}

/// What came of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scanned {
    /// Heads that ended among them.
    pub(super) heads: u32,
    /// Why they are not all good.
    pub(super) stop: Option<Stop>,
}

/// The first bytes that are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// How many bytes of those scanned last come before the line that is refused.
    pub(super) at: usize,
    pub(super) violation: Violation,
    /// It belongs to a request whose head was good.
    pub(super) is_in_body: bool,
}

impl Scan {
    pub(super) fn new(most_section_bytes: usize) -> Scan {
        Scan {
            state: State::RequestLine,
            begun: Vec::new(),
            head: Head::default(),
            section_bytes: 0,
            most_section_bytes,
        }
    }

    /// Scans the next bytes of the connection. After a stop nothing may follow.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Scanned {
        let mut heads = 0;
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let stepped = match self.state {
                State::Body(left) | State::Chunk(left) => Ok(self.skip(left, rest.len())),
                _ => self.step(rest, &mut heads),
            };
            match stepped {
                Ok(taken) => at += taken,
                Err(violation) => {
                    let is_in_body = !matches!(self.state, State::RequestLine | State::Fields);
                    return Scanned { heads, stop: Some(Stop { at, violation, is_in_body }) };
                }
            }
        }
        Scanned { heads, stop: None }
    }

    /// Passes over content.
    fn skip(&mut self, left: u64, available: usize) -> usize {
        let taken = usize::try_from(left).map_or(available, |left| left.min(available));
        let left = left - taken as u64;
        self.state = match (self.state, left) {
            (State::Chunk(_), 0) => State::ChunkEnd,
            (State::Chunk(_), _) => State::Chunk(left),
            (_, 0) => State::RequestLine,
            _ => State::Body(left),
        };
        taken
    }

    /// Takes a line, or the beginning of one.
    fn step(&mut self, rest: &[u8], heads: &mut u32) -> Result<usize, Violation> {
        let end = match self.state {
            State::RequestLine | State::Fields | State::Trailers => {
                lines::end(self.begun.last() == Some(&b'\r'), rest)?
            }
            _ => memchr(b'\n', rest).map(|at| at + 1),
        };
        let Some(taken) = end else {
            self.check_bound(self.begun.len() + rest.len())?;
            self.begun.extend_from_slice(rest);
            return Ok(rest.len());
        };
        self.check_bound(self.begun.len() + taken)?;
        if self.begun.is_empty() {
            self.section_bytes += taken;
            self.line(&rest[..taken], heads)?;
        } else {
            let mut whole = std::mem::take(&mut self.begun);
            whole.extend_from_slice(&rest[..taken]);
            self.section_bytes += whole.len();
            self.line(&whole, heads)?;
        }
        Ok(taken)
    }

    fn check_bound(&self, line_bytes: usize) -> Result<(), Violation> {
        match self.state {
            State::ChunkSize if line_bytes > CHUNK_LINE_BYTES => Err(Violation::ChunkExtension),
            State::ChunkEnd if line_bytes > 2 => Err(Violation::ChunkEnd),
            State::ChunkSize | State::ChunkEnd => Ok(()),
            _ if self.section_bytes + line_bytes > self.most_section_bytes => {
                Err(Violation::HeadTooLarge)
            }
            _ => Ok(()),
        }
    }

    fn line(&mut self, line: &[u8], heads: &mut u32) -> Result<(), Violation> {
        let content = lines::content(line)?;
        let (next, is_section_over) = match self.state {
            State::RequestLine if content.is_empty() => (State::RequestLine, false),
            State::RequestLine => {
                self.head = Head { is_http_11: lines::request_line(content)?, ..Head::default() };
                (State::Fields, false)
            }
            State::Fields if content.is_empty() => {
                *heads += 1;
                (self.head.body(), true)
            }
            State::Fields => {
                self.head.take(lines::field(content)?)?;
                (State::Fields, false)
            }
            State::ChunkSize => match chunk::size(content)? {
                0 => (State::Trailers, true),
                size => (State::Chunk(size), true),
            },
            State::ChunkEnd if content.is_empty() => (State::ChunkSize, true),
            State::ChunkEnd => return Err(Violation::ChunkEnd),
            State::Trailers if content.is_empty() => (State::RequestLine, true),
            State::Trailers => {
                lines::trailer(content)?;
                (State::Trailers, false)
            }
            State::Body(_) | State::Chunk(_) => unreachable!("content has no lines"),
        };
        self.state = next;
        if is_section_over {
            self.section_bytes = 0;
        }
        Ok(())
    }
}

impl Head {
    fn take(&mut self, field: Field) -> Result<(), Violation> {
        match field {
            Field::Other => return Ok(()),
            Field::Chunked if !self.is_http_11 => return Err(Violation::OldChunked),
            Field::Chunked if self.is_chunked => return Err(Violation::TransferEncoding),
            Field::Chunked => self.is_chunked = true,
            Field::Length(_) if self.length.is_some() => return Err(Violation::ContentLength),
            Field::Length(length) => self.length = Some(length),
        }
        if self.is_chunked && self.length.is_some() { Err(Violation::TwoLengths) } else { Ok(()) }
    }

    /// What follows the head.
    const fn body(self) -> State {
        match (self.is_chunked, self.length) {
            (true, _) => State::ChunkSize,
            (false, None | Some(0)) => State::RequestLine,
            (false, Some(length)) => State::Body(length),
        }
    }
}

#[cfg(test)]
mod tests;
