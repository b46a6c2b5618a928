//! Finds the end of a request among the frames that are written to an upstream (RFC 9113 §4.1).
//!
//! h2 keeps what the upstream's window has no room for, and says nothing of it. Whether the last byte of a request
//! has left can be seen in what is written, and nowhere else.

const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Follows what a client of HTTP/2 writes, from its first byte on.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes until the next frame begins.
    rest: usize,
    header: [u8; HEADER_BYTES],
    known: usize,
    /// The frame that is passing is the request's last one.
    is_last: bool,
    /// The head that is passing has no body behind it.
    is_head_last: bool,
}

impl Frames {
    pub(super) const fn new() -> Frames {
        Frames {
            rest: PREFACE_BYTES,
            header: [0; HEADER_BYTES],
            known: 0,
            is_last: false,
            is_head_last: false,
        }
    }

    /// Lets bytes pass; `true`: with them the end of a request did.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> bool {
        let mut has_ended = false;
        loop {
            let skipped = self.rest.min(bytes.len());
            self.rest -= skipped;
            bytes = &bytes[skipped..];
            if self.rest > 0 {
                return has_ended;
            }
            has_ended |= std::mem::take(&mut self.is_last);
            let missing = HEADER_BYTES - self.known;
            let taken = missing.min(bytes.len());
            self.header[self.known..self.known + taken].copy_from_slice(&bytes[..taken]);
            self.known += taken;
            bytes = &bytes[taken..];
            if taken < missing {
                return has_ended;
            }
            self.begin();
        }
    }

    fn begin(&mut self) {
        let [a, b, c, kind, flags, ..] = self.header;
        self.known = 0;
        self.rest = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let has = |flag| flags & flag != 0;
        self.is_last = match kind {
            DATA => has(END_STREAM),
            HEADERS => {
                self.is_head_last = has(END_STREAM);
                self.is_head_last && has(END_HEADERS)
            }
            CONTINUATION => self.is_head_last && has(END_HEADERS),
            _ => false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let [.., a, b, c] = length.to_be_bytes();
        let mut frame = vec![a, b, c, kind, flags, 0, 0, 0, 1];
        frame.resize(HEADER_BYTES + length, END_STREAM);
        frame
    }

    /// After how many bytes the end was seen, if they pass in pieces of `piece` bytes.
    fn end(frames: &[Vec<u8>], piece: usize) -> Option<usize> {
        let bytes = [&[0; PREFACE_BYTES][..], &frames.concat()].concat();
        let mut passing = Frames::new();
        let mut passed = 0;
        for piece in bytes.chunks(piece) {
            passed += piece.len();
            if passing.pass(piece) {
                return Some(passed - PREFACE_BYTES);
            }
        }
        None
    }

    #[test]
    fn the_end_is_seen_with_the_last_byte_of_the_last_frame_however_it_is_cut_up() {
        const SETTINGS: u8 = 4;
        let head = frame(HEADERS, END_HEADERS, 30);
        let cases = [
            vec![frame(SETTINGS, 1, 0), frame(HEADERS, END_HEADERS | END_STREAM, 30)],
            vec![head.clone(), frame(DATA, 0, 700), frame(DATA, END_STREAM, 5)],
            vec![head.clone(), frame(DATA, 0, 700), frame(DATA, END_STREAM, 0)],
            vec![frame(HEADERS, END_STREAM, 10), frame(CONTINUATION, END_HEADERS, 10)],
            vec![head.clone(), frame(DATA, 0, 7), frame(HEADERS, END_STREAM | END_HEADERS, 9)],
        ];
        for frames in cases {
            let length = frames.concat().len();
            assert_eq!(end(&frames, 1), Some(length));
            assert_eq!(end(&frames, usize::MAX >> 1), Some(length));
            let short = frames.concat().len() - 1;
            let mut passing = Frames::new();
            passing.pass(&[0; PREFACE_BYTES]);
            assert!(!passing.pass(&frames.concat()[..short]));
        }
        for frames in [
            vec![head.clone(), frame(DATA, 0, 700)],
            vec![frame(HEADERS, END_STREAM, 10)],
            vec![head, frame(3, END_STREAM, 4), frame(6, 1, 8)],
        ] {
            assert_eq!(end(&frames, 3), None);
        }
    }
}
