//! The host that a request names: in its Host field, and in an absolute target.
//!
//! It plays no part in routes and resources; it only must have one reading, so that the API takes it for the same.

use http::header::HOST;
use http::{HeaderMap, HeaderValue, Uri};

use super::refusal::Refusal;

/// An absolute target whose host is not the request's own has two readings (RFC 9112 §3.2.2).
///
/// # Errors
/// They differ, or the target is of another scheme.
pub(super) fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    if !matches!(uri.scheme_str(), None | Some("http" | "https")) {
        return Err(Refusal::Unresolvable("the target's scheme is not http".into()));
    }
    let Some(authority) = uri.authority() else { return Ok(()) };
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    if host.is_some_and(|host| !host.eq_ignore_ascii_case(authority.as_str().as_bytes())) {
        return Err(Refusal::Unresolvable("the target's host and the Host field differ".into()));
    }
    Ok(())
}

/// A name, an IPv4 address or an IPv6 address in brackets, and a port (RFC 9112 §3.2). Of what the grammar allows
/// in names, no more than names really have.
pub(super) fn is_host(value: &[u8]) -> bool {
    let in_name = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' | b'~');
    let in_address = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let (is_sound, rest) = match value.strip_prefix(b"[") {
        Some(inner) => {
            let end = inner.iter().take_while(|byte| in_address(byte)).count();
            (end > 0 && inner.get(end) == Some(&b']'), inner.get(end + 1..).unwrap_or_default())
        }
        None => {
            let end = value.iter().take_while(|byte| in_name(byte)).count();
            (end > 0, &value[end..])
        }
    };
    let is_port = |port: &[u8]| port.len() <= 5 && port.iter().all(u8::is_ascii_digit);
    is_sound && (rest.is_empty() || rest.strip_prefix(b":").is_some_and(is_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_a_port() {
        for host in ["a", "a.b-c_d", "127.0.0.1:80", "[::1]", "[::1]:8080", "a:", "A:65535"] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in [
            "", ":80", "a b", "a,b", "a/b", "a@b", "a:b", "a:123456", "[::1", "[]", "[::1]a",
            "a%2e", "\u{e9}", "a:80:80",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
