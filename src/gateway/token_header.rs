//! The token out of the request's head.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::refusal::Refusal;
use crate::fence::Token;

pub(super) static FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");
pub(super) static X_FENCING_TOKEN: HeaderName = HeaderName::from_static("x-fencing-token");

/// The token, if the request carries one.
///
/// # Errors
/// It is malformed, repeated, or its two headers contradict each other.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<Token>, Refusal> {
    let plain = single(headers, &FENCING_TOKEN)?;
    let prefixed = single(headers, &X_FENCING_TOKEN)?;
    match (plain, prefixed) {
        (None, None) => Ok(None),
        (Some(value), None) | (None, Some(value)) => parse(value).map(Some),
        (Some(one), Some(other)) => {
            let (one, other) = (parse(one)?, parse(other)?);
            if one != other {
                return Err(Refusal::AmbiguousToken(
                    "Fencing-Token and X-Fencing-Token differ; send one of them",
                ));
            }
            Ok(Some(one))
        }
    }
}

fn single<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Refusal::AmbiguousToken("the token header is repeated; send it once"));
    }
    Ok(first)
}

fn parse(value: &HeaderValue) -> Result<Token, Refusal> {
    Token::parse(value.as_bytes()).map_err(Refusal::MalformedToken)
}
