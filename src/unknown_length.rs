//! Bodies of requests whose length nobody knows.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue};
use http_body::SizeHint;

/// Says over HTTP/1.1 that such a body follows. hyper would send a GET with one without it.
pub(crate) fn announce(headers: &mut HeaderMap, length: &SizeHint) {
    if length.exact().is_none() && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}
