//! The token out of the request's head.

use http::HeaderValue;

use super::refusal::Refusal;
use crate::fence::{InvalidToken, Token};

/// The two fields that may carry the token.
#[derive(Debug, Default)]
pub(super) struct TokenFields {
    pub(super) plain: TokenField,
    pub(super) prefixed: TokenField,
}

/// One of them, as it came.
#[derive(Debug, Default)]
pub(super) enum TokenField {
    #[default]
    Absent,
    Once(Result<Token, InvalidToken>),
    Repeated,
}

impl TokenField {
    /// Takes in a value of the field.
    pub(super) fn add(&mut self, value: &HeaderValue) {
        *self = match self {
            TokenField::Absent => TokenField::Once(Token::parse(value.as_bytes())),
            TokenField::Once(_) | TokenField::Repeated => TokenField::Repeated,
        };
    }

    fn single(&self) -> Result<Option<Result<Token, InvalidToken>>, Refusal> {
        match self {
            TokenField::Absent => Ok(None),
            TokenField::Once(token) => Ok(Some(*token)),
            TokenField::Repeated => {
                Err(Refusal::AmbiguousToken("the token header is repeated; send it once"))
            }
        }
    }
}

impl TokenFields {
    /// The token, if the request carries one.
    ///
    /// # Errors
    /// It is malformed, repeated, or its two headers contradict each other.
    pub(super) fn token(&self) -> Result<Option<Token>, Refusal> {
        match (self.plain.single()?, self.prefixed.single()?) {
            (None, None) => Ok(None),
            (Some(token), None) | (None, Some(token)) => {
                token.map(Some).map_err(Refusal::MalformedToken)
            }
            (Some(one), Some(other)) => {
                let one = one.map_err(Refusal::MalformedToken)?;
                let other = other.map_err(Refusal::MalformedToken)?;
                if one != other {
                    return Err(Refusal::AmbiguousToken(
                        "Fencing-Token and X-Fencing-Token differ; send one of them",
                    ));
                }
                Ok(Some(one))
            }
        }
    }
}
