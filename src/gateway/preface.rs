//! HTTP/2 by prior knowledge: what a client that speaks it begins with on plain text (RFC 9113 §3.4).

/// No HTTP/1.1 request can begin like this.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the first bytes of a connection tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    Http1,
    Http2,
    /// More bytes are needed.
    NotClear,
}

pub(super) fn judge(first: &[u8]) -> Speaks {
    if first.starts_with(PREFACE) {
        Speaks::Http2
    } else if PREFACE.starts_with(first) {
        Speaks::NotClear
    } else {
        Speaks::Http1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_preface_is_http2_and_every_other_beginning_is_http1_at_once() {
        for length in 0..PREFACE.len() {
            assert_eq!(judge(&PREFACE[..length]), Speaks::NotClear);
        }
        assert_eq!(judge(PREFACE), Speaks::Http2);
        assert_eq!(judge(&[PREFACE, b"more"].concat()), Speaks::Http2);
        for other in ["G", "PUT / HTTP/1.1\r\n", "PRI * HTTP/1.1\r\n", "PRINT", "\r\n"] {
            assert_eq!(judge(other.as_bytes()), Speaks::Http1, "{other:?}");
        }
    }
}
