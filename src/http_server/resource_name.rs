//! The resource in the path of a request.

use axum::extract::FromRequestParts;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::fence::Resource;
use crate::problem::{Code, Problem};

/// The resource that one percent-encoded segment names. axum's own extractor is not used since it
/// leaves a broken escape as it stands, which gives one resource two spellings.
///
/// For routes of the form `/v1/COLLECTION/{resource}`, with or without more behind it.
pub(crate) struct ResourceName(pub(crate) Resource);

impl<S: Sync> FromRequestParts<S> for ResourceName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<ResourceName, Problem> {
        let segment = parts.uri.path().split('/').nth(3).unwrap_or_default();
        decode(segment).map(ResourceName)
    }
}

/// Reads a percent-encoded name.
fn decode(segment: &str) -> Result<Resource, Problem> {
    let unresolvable = |detail: String| Problem::new(Code::UnresolvableResource, detail);
    let escapes = segment.split('%').skip(1);
    for escape in escapes {
        let digits = escape.as_bytes().get(..2);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(unresolvable(
                "a % in the resource name is not followed by two hexadecimal digits; write % as %25"
                    .to_owned(),
            ));
        }
    }
    let name = percent_decode_str(segment).decode_utf8().map_err(|_| {
        unresolvable("the resource name is not UTF-8 after percent-decoding".to_owned())
    })?;
    Resource::new(&name).map_err(|error| unresolvable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_segment_is_one_name() {
        let read = |segment| decode(segment).map(|resource| resource.to_string());
        assert_eq!(read("account:7").unwrap(), "account:7");
        assert_eq!(read("a%2Fb").unwrap(), "a/b");
        assert_eq!(read("a%2fb+%25").unwrap(), "a/b+%");
        assert_eq!(read("%C3%A9").unwrap(), "é");
        for bad in ["", "%", "%2", "%zz", "a%+1", "%ff", "%00", "%0A", &"x".repeat(1025)] {
            let problem = decode(bad).unwrap_err();
            assert_eq!(problem.code(), Code::UnresolvableResource, "{bad:?}");
        }
    }
}
