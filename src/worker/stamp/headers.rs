//! What happens to header fields on their way: pure functions.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;

use crate::fence::Token;
use crate::worker::token_header;

/// Fields that are about one connection (RFC 9110, 7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes what is about one connection only.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        // The body's length is the message's own, and without it the body has no end.
        .filter(|name| *name != header::CONTENT_LENGTH)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Makes the request one of this lease, for this host.
pub(super) fn stamp(headers: &mut HeaderMap, token: Token, host: &Authority) {
    token_header::stamp(headers, token);
    let host = HeaderValue::from_str(host.as_str()).expect("an authority is printable ASCII");
    headers.insert(header::HOST, host);
    // This hop has answered it already.
    headers.remove(header::EXPECT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_the_program_and_fields_of_the_connection_do_not_pass() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-One , fencing-token"),
            ("connection", "x-two, content-length"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "secret"),
            ("fencing-token", "98"),
            ("fencing-token", "99"),
            ("x-fencing-token", "99"),
            ("host", "elsewhere"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        remove_hop_by_hop(&mut headers);
        stamp(&mut headers, Token::new(7).unwrap(), &Authority::from_static("api:81"));
        let mut left: Vec<_> =
            headers.iter().map(|(k, v)| (k.as_str(), v.to_str().unwrap())).collect();
        left.sort_unstable();
        let expected =
            [("content-length", "5"), ("fencing-token", "7"), ("host", "api:81"), ("x-three", "3")];
        assert_eq!(left, expected);
    }
}
