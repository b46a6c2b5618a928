use super::*;

const LIMIT: usize = 8192;

fn scan(bytes: &[u8]) -> Scanned {
    Scan::new(LIMIT).feed(bytes)
}

/// The same in pieces of `size` bytes: heads that ended, and why it stopped.
fn scan_in_pieces(bytes: &[u8], size: usize) -> (u32, Option<(Violation, bool)>) {
    let mut scan = Scan::new(LIMIT);
    let mut heads = 0;
    for piece in bytes.chunks(size) {
        let scanned = scan.feed(piece);
        heads += scanned.heads;
        if let Some(stop) = scanned.stop {
            return (heads, Some((stop.violation, stop.is_in_body)));
        }
    }
    (heads, None)
}

#[track_caller]
fn stops(bytes: &str, violation: Violation, is_in_body: bool) {
    let scanned = scan(bytes.as_bytes());
    let stop = scanned.stop.unwrap_or_else(|| panic!("{bytes:?} is taken"));
    assert_eq!((stop.violation, stop.is_in_body), (violation, is_in_body), "{bytes:?}");
    for size in [1, 2, 3, 7] {
        let (heads, in_pieces) = scan_in_pieces(bytes.as_bytes(), size);
        assert_eq!(heads, scanned.heads, "{bytes:?} in pieces of {size}");
        assert_eq!(in_pieces, Some((violation, is_in_body)), "{bytes:?} in pieces of {size}");
    }
}

#[track_caller]
fn takes(bytes: &str, heads: u32) {
    assert_eq!(scan(bytes.as_bytes()), Scanned { heads, stop: None }, "{bytes:?}");
    for size in [1, 2, 3, 7] {
        assert_eq!(scan_in_pieces(bytes.as_bytes(), size), (heads, None), "{bytes:?} in {size}");
    }
}

#[test]
fn requests_follow_each_other_where_their_bodies_end() {
    takes("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1);
    takes("\r\n\r\nGET / HTTP/1.0\r\n\r\n", 1);
    takes("PUT /x HTTP/1.1\r\ncontent-LENGTH:\t3 \r\n\r\nabcGET / HTTP/1.1\r\n\r\n", 2);
    takes("PUT /x HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n", 2);
    takes(
        "PUT /x HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n2;a=\"b\"\r\n\n\n\r\n00\r\nX: 1\r\n\r\n\
         GET / HTTP/1.1\r\n\r\n",
        2,
    );
    // What looks like a head in a body is content.
    takes("PUT /x HTTP/1.1\r\nContent-Length: 9\r\n\r\nA B C\n\n\n\nGET / HTTP/1.1\r\n\r\n", 2);
}

#[test]
fn a_head_that_servers_frame_differently_is_refused() {
    use Violation as V;
    let line = "PUT /x HTTP/1.1\r\n";
    for (fields, violation) in [
        ("Host: a\n\r\n", V::BareLineFeed),
        ("Host: a\r\n\n", V::BareLineFeed),
        ("Host: a\rb: c\r\n\r\n", V::Control),
        ("Host: a\r\r\n\r\n", V::Control),
        ("Host: a\0\r\n\r\n", V::Control),
        ("Host: a\r\n b\r\n\r\n", V::Folded),
        ("\tHost: a\r\n\r\n", V::Folded),
        ("Host : a\r\n\r\n", V::FieldName),
        ("Host\r\n\r\n", V::FieldName),
        (": a\r\n\r\n", V::FieldName),
        ("Ho\u{e9}st: a\r\n\r\n", V::FieldName),
        ("Content-Length: 1\r\nContent-Length: 1\r\n\r\n", V::ContentLength),
        ("Content-Length: 1, 1\r\n\r\n", V::ContentLength),
        ("Content-Length: +1\r\n\r\n", V::ContentLength),
        ("Content-Length: 0x1\r\n\r\n", V::ContentLength),
        ("Content-Length: 1_0\r\n\r\n", V::ContentLength),
        ("Content-Length:\r\n\r\n", V::ContentLength),
        ("Content-Length: 1000000000000000000\r\n\r\n", V::ContentLength),
        ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", V::TwoLengths),
        ("Content-Length: 1\r\ntransfer-encoding: chunked\r\n\r\n", V::TwoLengths),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", V::TransferEncoding),
        ("Transfer-Encoding: gzip, chunked\r\n\r\n", V::TransferEncoding),
        ("Transfer-Encoding: chunked, identity\r\n\r\n", V::TransferEncoding),
        ("Transfer-Encoding: \u{b}chunked\r\n\r\n", V::Control),
        ("Transfer-Encoding: \"chunked\"\r\n\r\n", V::TransferEncoding),
        ("Transfer-Encoding: chunked;q=1\r\n\r\n", V::TransferEncoding),
        ("Transfer-Encoding:\r\n\r\n", V::TransferEncoding),
    ] {
        stops(&format!("{line}{fields}"), violation, false);
    }
    stops("PUT /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", V::OldChunked, false);
}

#[test]
fn a_request_line_with_two_readings_is_refused() {
    for line in [
        "GET / HTTP/1.1 ",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        " GET / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /",
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / HTTP/01.1",
        "GET / http/1.1",
        "GET  HTTP/1.1",
        "G(T / HTTP/1.1",
        "/ HTTP/1.1",
        "HTTP/1.1",
    ] {
        stops(&format!("{line}\r\nHost: a\r\n\r\n"), Violation::RequestLine, false);
    }
    for target in ["/a#b", "#", "/?q#", "http://a/b#c"] {
        stops(&format!("GET {target} HTTP/1.1\r\n\r\n"), Violation::Fragment, false);
    }
}

#[test]
fn a_chunked_body_that_servers_frame_differently_is_refused() {
    use Violation as V;
    let head = "PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, violation) in [
        ("1\nb\r\n0\r\n\r\n", V::BareLineFeed),
        ("1\r\nb\n0\r\n\r\n", V::BareLineFeed),
        ("1\r\nbXX0\r\n\r\n", V::ChunkEnd),
        ("1\r\nbb\r\n0\r\n\r\n", V::ChunkEnd),
        ("2\r\nb\r\n0\r\n\r\n", V::BareLineFeed),
        ("1;a\nb\r\n0\r\n\r\n", V::BareLineFeed),
        ("1;a\rb\r\nb\r\n0\r\n\r\n", V::Control),
        ("1 \r\nb\r\n0\r\n\r\n", V::ChunkSize),
        ("0x1\r\nb\r\n0\r\n\r\n", V::ChunkSize),
        ("\r\n0\r\n\r\n", V::ChunkSize),
        ("1;\r\nb\r\n0\r\n\r\n", V::ChunkExtension),
        ("0\r\nX : 1\r\n\r\n", V::FieldName),
        ("0\r\n folded\r\n\r\n", V::Folded),
        ("0\r\nGET / HTTP/1.1\r\n\r\n", V::FieldName),
        ("0\r\n\n", V::BareLineFeed),
    ] {
        stops(&format!("{head}{body}"), violation, true);
    }
    let long = format!("{head}1;{}\r\nb\r\n0\r\n\r\n", "a".repeat(300));
    stops(&long, V::ChunkExtension, true);
}

#[test]
fn what_comes_before_a_refused_line_goes_on() {
    let good = "PUT /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
    let bad = "GET / HTTP/1.1\r\nHost: a\n\n";
    let scanned = scan(format!("{good}{bad}").as_bytes());
    let at = good.len() + "GET / HTTP/1.1\r\n".len();
    assert_eq!(scanned.heads, 1);
    let violation = Violation::BareLineFeed;
    assert_eq!(scanned.stop, Some(Stop { at, violation, is_in_body: false }));
}

#[test]
fn a_head_has_a_bound_however_it_comes() {
    let long = "x".repeat(LIMIT);
    for head in [
        format!("GET /{long} HTTP/1.1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(LIMIT / 6)),
        "\r\n".repeat(LIMIT),
        format!("GET /{long}"),
    ] {
        stops(&head, Violation::HeadTooLarge, false);
    }
    let trailers = "X: 1\r\n".repeat(LIMIT / 6 + 1);
    let chunked = "PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    stops(&format!("{chunked}{trailers}\r\n"), Violation::HeadTooLarge, true);
}
