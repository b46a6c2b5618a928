//! The scan of a client's bytes finds heads where the parser behind it finds them, and finds the same however the bytes
//! are cut into pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/gateway/framing/chunk.rs"]
mod chunk;
#[path = "../../src/gateway/framing/lines.rs"]
mod lines;
#[path = "../../src/gateway/framing/scan.rs"]
mod scan;
#[path = "../../src/gateway/framing/violation.rs"]
mod violation;

use scan::Scan;

const LIMIT: usize = 8192;

fuzz_target!(|bytes: &[u8]| {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let whole = Scan::new(LIMIT).feed(bytes);
    let end = whole.stop.map_or(bytes.len(), |stop| stop.at);

    let (mut scan, mut heads, mut stop) = (Scan::new(LIMIT), 0, None);
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        let scanned = scan.feed(piece);
        heads += scanned.heads;
        stop = scanned.stop;
        if stop.is_some() {
            break;
        }
    }
    assert_eq!(heads, whole.heads);
    let verdict = |stop: Option<scan::Stop>| stop.map(|stop| (stop.violation, stop.is_in_body));
    assert_eq!(verdict(stop), verdict(whole.stop));

    if let Some(heads) = parsed_heads(&bytes[..end]) {
        assert_eq!(heads, whole.heads, "the parser finds other heads");
    }
});

/// Whole heads among `bytes`, as the parser that hyper uses finds them; `None` if it refuses one.
fn parsed_heads(bytes: &[u8]) -> Option<u32> {
    let (mut heads, mut rest) = (0, bytes);
    loop {
        let mut fields = [httparse::EMPTY_HEADER; 256];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(rest).ok()? {
            httparse::Status::Partial => return Some(heads),
            httparse::Status::Complete(length) => rest = &rest[length..],
        }
        heads += 1;
        let named = |name: &'static str| {
            request.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name))
        };
        let lengths: Vec<_> = named("content-length").map(|field| field.value).collect();
        let codings: Vec<_> = named("transfer-encoding").map(|field| field.value).collect();
        let after = match (&lengths[..], &codings[..]) {
            ([], []) => Some(rest),
            ([length], []) => {
                let length =
                    std::str::from_utf8(length).ok()?.parse::<usize>().expect("it is a number");
                rest.get(length..)
            }
            ([], [coding]) => {
                assert!(coding.eq_ignore_ascii_case(b"chunked"));
                after_chunks(rest)?
            }
            _ => panic!("two readings of the length were let through"),
        };
        let Some(after) = after else { return Some(heads) };
        rest = after;
    }
}

/// What follows a chunked body; `Some(None)` if it is not over, `None` if the parser refuses it.
fn after_chunks(mut rest: &[u8]) -> Option<Option<&[u8]>> {
    loop {
        let (at, size) = match httparse::parse_chunk_size(rest).ok()? {
            httparse::Status::Partial => return Some(None),
            httparse::Status::Complete(found) => found,
        };
        rest = &rest[at..];
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        let line = rest.get(size..).unwrap_or_default();
        // What follows a chunk is judged when its line is whole, or has a third byte.
        if line.len() < 3 && !line.contains(&b'\n') {
            return Some(None);
        }
        assert_eq!(&line[..2], b"\r\n", "a chunk's end was not checked");
        rest = &line[2..];
    }
    let mut fields = [httparse::EMPTY_HEADER; 256];
    match httparse::parse_headers(rest, &mut fields).ok()? {
        httparse::Status::Partial => Some(None),
        httparse::Status::Complete((length, _)) => Some(Some(&rest[length..])),
    }
}
