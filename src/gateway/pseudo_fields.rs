//! An HTTP/2 request's head in the form that a head of HTTP/1.1 has, so that one set of rules judges both.
//!
//! h2 has refused by then, by resetting the stream, what RFC 9113 §8.1.1 calls malformed: unknown, repeated, missing
//! and late pseudo-fields, names in upper case, and fields that are about the connection.

use http::header::{COOKIE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Uri};

use super::refusal::Refusal;

/// Makes `Host` of `:authority`, an origin-form target of the rest, and one field of all cookies.
///
/// # Errors
/// The head contradicts itself, or says what no head of HTTP/1.1 can say.
pub(super) fn normalise(parts: &mut Parts) -> Result<(), Refusal> {
    let padded = |value: &HeaderValue| {
        let is_blank = |byte: Option<&u8>| byte.is_some_and(|byte| b" \t".contains(byte));
        is_blank(value.as_bytes().first()) || is_blank(value.as_bytes().last())
    };
    if parts.headers.values().any(padded) {
        // RFC 9113 §8.2.1. The next hop would read it without, and so as another value.
        return Err(Refusal::InvalidRequest("a field's value begins or ends with a blank"));
    }
    if parts.uri.scheme_str().is_some_and(|scheme| scheme != "http" && scheme != "https") {
        return Err(Refusal::InvalidRequest("the scheme is http or https"));
    }
    join_cookies(&mut parts.headers);
    let Some(authority) = parts.uri.authority() else { return Ok(()) };
    if authority.as_str().contains('@') {
        return Err(Refusal::InvalidRequest("the authority must have no user name"));
    }
    let differs =
        |host: &HeaderValue| !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
    if parts.headers.get_all(HOST).iter().any(differs) {
        return Err(Refusal::Unresolvable("the authority and the Host field differ".into()));
    }
    let host = HeaderValue::from_str(authority.as_str())
        .map_err(|_| Refusal::InvalidRequest("the authority is no host"))?;
    parts.headers.insert(HOST, host);
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    parts.uri = Uri::try_from(target)
        .map_err(|_| Refusal::Unresolvable("the target is neither a path nor *".into()))?;
    Ok(())
}

/// HTTP/2 lets a client split them (RFC 9113 §8.2.3), HTTP/1.1 does not.
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let (Some(first), Some(second)) = (cookies.next(), cookies.next()) else { return };
    let all: Vec<&[u8]> = [first, second].into_iter().chain(cookies).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Version};

    use super::*;

    fn parts(uri: &str, fields: &[(&'static str, &'static str)]) -> Parts {
        let mut request = Request::builder().version(Version::HTTP_2).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_authority_becomes_the_host_and_the_target_stays_byte_for_byte() {
        let mut head =
            parts("https://api.example/a%2Db/?q=1", &[("cookie", "a=1"), ("cookie", "b=2")]);
        normalise(&mut head).unwrap();
        assert_eq!(head.uri, "/a%2Db/?q=1");
        assert_eq!(head.headers[HOST], "api.example");
        assert_eq!(head.headers.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2"]);
    }

    #[test]
    fn heads_with_two_readings_are_refused() {
        for (uri, fields) in [
            ("https://api.example/", vec![("host", "other.example")]),
            ("https://api.example/", vec![("host", "api.example"), ("host", "other.example")]),
            ("https://user@api.example/", vec![]),
            ("ftp://api.example/", vec![]),
            ("https://api.example/", vec![("fencing-token", " 42")]),
            ("https://api.example/", vec![("fencing-token", "42\t")]),
        ] {
            assert!(normalise(&mut parts(uri, &fields)).is_err(), "{uri} {fields:?}");
        }
        normalise(&mut parts("https://api.example/", &[("host", "API.example")])).unwrap();
    }
}
