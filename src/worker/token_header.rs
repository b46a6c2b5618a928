//! The token on a request.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::fence::Token;

/// The header field that carries the token.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");
const X_FENCING_TOKEN: HeaderName = HeaderName::from_static("x-fencing-token");

/// Puts the token on a request, in place of any that is there. Works for `http::Request`, and so
/// for hyper, and for `reqwest::Request`:
///
/// ```
/// use fencegate::{fence::Token, worker::stamp};
///
/// let mut request = http::Request::put("http://127.0.0.1:8080/reports/7").body(())?;
/// stamp(request.headers_mut(), "42".parse::<Token>()?);
/// assert_eq!(request.headers()["fencing-token"], "42");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn stamp(headers: &mut HeaderMap, token: Token) {
    headers.remove(X_FENCING_TOKEN);
    headers.insert(FENCING_TOKEN, HeaderValue::from(token.get()));
}
