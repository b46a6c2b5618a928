//! Where a request ends, and what may hide in it, behind it, or behind one that is refused.

#![allow(clippy::too_many_lines, reason = "tables")]

use super::{Expected, INNER, REQUEST, Row, TARGET, done, put, refused, unframed, with_length};

pub fn rows() -> Vec<Row> {
    [lengths(), codings(), lines(), between()].into_iter().flatten().collect()
}

fn lengths() -> Vec<Row> {
    let length = |id, what, rest: &str| refused(id, what, unframed("/n/x", rest), REQUEST);
    vec![
        length(
            "CVE-2019-20445",
            "Netty: two Content-Length fields",
            "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        ),
        length(
            "CVE-2017-7658",
            "Jetty: of two lengths the second is ignored",
            "Content-Length: 1\r\nContent-Length: 0\r\n\r\nx",
        ),
        length(
            "CVE-2020-10108",
            "Twisted: the same",
            "Content-Length: 0\r\nContent-Length: 1\r\n\r\nx",
        ),
        length(
            "no number: equal lengths",
            "Content-Length twice, with one value",
            "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        ),
        length("no number: equal lengths", "in one field", "Content-Length: 1, 1\r\n\r\nx"),
        length(
            "CVE-2021-32715",
            "hyper: a plus sign before the length",
            "Content-Length: +1\r\n\r\nx",
        ),
        length("CVE-2023-38697", "Falcon: a length in hexadecimal", "Content-Length: 0x1\r\n\r\nx"),
        length(
            "CVE-2023-40225",
            "HAProxy: an empty length is passed on",
            "Content-Length:\r\n\r\nx",
        ),
        length(
            "CVE-2020-10109",
            "Twisted: both Content-Length and chunked",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        length(
            "no number: TE.CL",
            "the same in the other order",
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
        ),
    ]
}

fn codings() -> Vec<Row> {
    let coding = |id, what, fields: &str| {
        refused(id, what, unframed("/n/x", &format!("{fields}\r\n1\r\nx\r\n0\r\n\r\n")), REQUEST)
    };
    let chunks = |id, what, body: &str| {
        refused(
            id,
            what,
            unframed("/n/x", &format!("Transfer-Encoding: chunked\r\n\r\n{body}")),
            REQUEST,
        )
    };
    vec![
        coding("RUSTSEC-2021-0020", "hyper: of several Transfer-Encoding fields the last counts", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
        coding("CVE-2026-2835", "Pingora: several codings are read as none", "Transfer-Encoding: identity, chunked\r\n"),
        refused(
            "CVE-2026-2835",
            "Pingora: chunked in HTTP/1.0",
            "PUT /n/x HTTP/1.0\r\nHost: test\r\nFencing-Token: {t}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".into(),
            REQUEST,
        ),
        coding("CVE-2026-66752", "tiny-http: a coding that it does not know is no coding", "Transfer-Encoding: xchunked\r\n"),
        coding("CVE-2022-32213", "Node: codings are not validated", "Transfer-Encoding: chunkedchunked\r\n"),
        coding("CVE-2022-32215", "Node: a coding over two lines", "Transfer-Encoding: chunked\r\n , identity\r\n"),
        coding("CVE-2024-1135", "Gunicorn: codings that contradict each other", "Transfer-Encoding: chunked, gzip\r\n"),
        coding("no number: TE.TE", "a vertical tab before the coding", "Transfer-Encoding: \x0bchunked\r\n"),
        chunks("CVE-2021-32714", "hyper: a chunk size beyond 64 bits", "f000000000000001\r\nx\r\n0\r\n\r\n"),
        chunks("CVE-2023-38697", "Falcon: +1 and 0x1 are sizes", "0x1\r\nx\r\n0\r\n\r\n"),
        chunks("CVE-2022-24761", "waitress: +1 is a size", "+1\r\nx\r\n0\r\n\r\n"),
        chunks("CVE-2022-32214", "Node: LF ends a line", "1\nx\r\n0\r\n\r\n"),
        chunks("CVE-2025-22871", "Go: LF ends the line of a chunk's size", "1;a\nx\r\n0\r\n\r\n"),
        chunks("CVE-2025-55315", "Kestrel: CR and LF alone in a chunk's extension", "1;\rx\r\nx\r\n0\r\n\r\n"),
        chunks("CVE-2025-55315", "Kestrel: a bare LF ends the extension", "1;\n0\r\n\r\n"),
        chunks("no number: chunk's end", "a chunk longer than its size", "1\r\nxyz\r\n0\r\n\r\n"),
        done(
            "CVE-2021-22960",
            "Node: extensions of chunks are not looked at",
            unframed("/n/x", "Transfer-Encoding: chunked\r\n\r\n1;a=\"0\"\r\nx\r\n0;b\r\n\r\n"),
            "/n/x",
            "x",
        ),
        done(
            "no number: trailers",
            "trailers are read as fields (they end here)",
            unframed("/n/x", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nContent-Length: 9\r\nFencing-Token: 1\r\nHost: b\r\n\r\n"),
            "/n/x",
            "x",
        ),
    ]
}

fn lines() -> Vec<Row> {
    let head = |id, what, bytes: &str| refused(id, what, bytes.to_owned(), REQUEST);
    vec![
        head(
            "CVE-2022-32214",
            "Node: LF ends a line of a head",
            "PUT /n/x HTTP/1.1\nHost: test\nFencing-Token: {t}\nContent-Length: 1\n\nx",
        ),
        head(
            "CVE-2023-30589",
            "Node: CR ends a line of a head",
            "PUT /n/x HTTP/1.1\r\nHost: test\r\nX: a\rContent-Length: 1\r\nFencing-Token: {t}\r\n\r\n",
        ),
        head(
            "no number: folding",
            "a field over two lines",
            "PUT /n/x HTTP/1.1\r\nHost: test\r\nX: a\r\n Content-Length: 1\r\nFencing-Token: {t}\r\n\r\n",
        ),
        head(
            "no number: NUL",
            "in a field",
            "PUT /n/x HTTP/1.1\r\nHost: test\r\nX: a\0b\r\nFencing-Token: {t}\r\nContent-Length: 1\r\n\r\nx",
        ),
        head(
            "CVE-2026-50020",
            "Netty: control characters before a request are passed over",
            "\0\x01PUT /n/x HTTP/1.1\r\nHost: test\r\nFencing-Token: {t}\r\nContent-Length: 1\r\n\r\nx",
        ),
        head(
            "no number: request line",
            "two spaces",
            "PUT  /n/x HTTP/1.1\r\nHost: test\r\nFencing-Token: {t}\r\nContent-Length: 1\r\n\r\nx",
        ),
        head(
            "no number: request line",
            "a space in the target",
            "PUT /n/x /n/y HTTP/1.1\r\nHost: test\r\nFencing-Token: {t}\r\nContent-Length: 1\r\n\r\nx",
        ),
        head(
            "no number: request line",
            "a version that nobody speaks",
            "PUT /n/x HTTP/1.2\r\nHost: test\r\nFencing-Token: {t}\r\nContent-Length: 1\r\n\r\nx",
        ),
        head("no number: request line", "HTTP/0.9", "GET /n/x\r\n"),
    ]
}

/// What is hidden in a request, behind it, or behind one that is refused.
fn between() -> Vec<Row> {
    use Expected::{Done, Refused};
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let token_required = || Refused(428, "fencing_token_required");
    vec![
        Row {
            id: "CVE-2026-2833",
            what: "Pingora: what follows an Upgrade is passed on unread",
            bytes: format!("{}{INNER}", put("/n/x", upgrade)),
            answers: vec![Done("/n/x", "x"), token_required()],
        },
        Row {
            id: "CVE-2025-4366",
            what: "Pingora: the body of a request that is answered early is taken for the next one",
            bytes: format!(
                "PUT /n/x HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{INNER}",
                INNER.len()
            ),
            answers: vec![token_required()],
        },
        Row {
            id: "no number: pipelined garbage",
            what: "what follows a request is none",
            bytes: format!("{}garbage\r\n\r\n", put("/n/x", "")),
            answers: vec![Done("/n/x", "x"), Refused(400, REQUEST)],
        },
        Row {
            id: "no number: pipelined garbage",
            what: "a refused head behind a good request, in one piece",
            bytes: format!(
                "{}{}",
                put("/n/x", ""),
                unframed(
                    "/n/y",
                    "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                )
            ),
            answers: vec![Done("/n/x", "x"), Refused(400, REQUEST)],
        },
        Row {
            id: "no number: CL.0",
            what: "the body of a refused write is a request",
            bytes: format!("{}{}", with_length("/n/../x", "", INNER), put("/n/y", "")),
            answers: vec![Refused(400, TARGET), Done("/n/y", "x")],
        },
        Row {
            id: "no number: empty lines",
            what: "before a request they are passed over (RFC 9112 asks for that)",
            bytes: format!("\r\n\r\n{}", put("/n/x", "")),
            answers: vec![Done("/n/x", "x")],
        },
    ]
}
