//! The fencing token: the number that orders the leases of one resource.

use std::fmt;
use std::num::NonZeroU64;

/// A fencing token, `1..=i64::MAX`.
///
/// The bound is that of a signed 64-bit column and of an etcd revision, so that a token which
/// parses can be stored and compared everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

/// Why a text is not a fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// Nothing was given.
    #[error("the token is empty; send a bare decimal number such as 42")]
    Empty,
    /// Something other than the digits 0 to 9 was given.
    #[error(
        "the token has a character that is not a digit 0-9; send a bare decimal number such as 42"
    )]
    NotDecimal,
    /// The number begins with a zero.
    #[error("the token begins with 0; send it without leading zeros, and never 0 itself")]
    LeadingZero,
    /// The number is above `i64::MAX`.
    #[error("the token is larger than 9223372036854775807")]
    TooLarge,
}

impl Token {
    /// The largest token, `i64::MAX`.
    pub const MAX: Token = match Token::new(i64::MAX as u64) {
        Some(token) => token,
        None => unreachable!(),
    };

    /// Makes a token of a number in `1..=i64::MAX`.
    #[must_use]
    pub const fn new(number: u64) -> Option<Token> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= i64::MAX as u64 => Some(Token(number)),
            _ => None,
        }
    }

    /// Reads the token out of a header or argument: decimal digits and nothing else.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(text: &[u8]) -> Result<Token, InvalidToken> {
        match text {
            [] => return Err(InvalidToken::Empty),
            _ if !text.iter().all(u8::is_ascii_digit) => return Err(InvalidToken::NotDecimal),
            [b'0', ..] => return Err(InvalidToken::LeadingZero),
            _ if text.len() > 19 => return Err(InvalidToken::TooLarge),
            _ => {}
        }
        let number = text.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        Token::new(number).ok_or(InvalidToken::TooLarge)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The number as a database column holds it.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0.get().cast_signed()
    }

    /// Reads a database column.
    #[must_use]
    pub fn from_i64(number: i64) -> Option<Token> {
        u64::try_from(number).ok().and_then(Token::new)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Token, InvalidToken> {
        Token::parse(text.as_bytes())
    }
}

/// Tokens are JSON strings on the wire: a JavaScript number loses digits above 2^53.
impl serde::Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Token {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_decimals_in_range_are_tokens() {
        assert_eq!(Token::parse(b"42").map(Token::get), Ok(42));
        assert_eq!(Token::parse(b"9223372036854775807"), Ok(Token::MAX));
        let refused = [
            ("", InvalidToken::Empty),
            ("0", InvalidToken::LeadingZero),
            ("042", InvalidToken::LeadingZero),
            ("+1", InvalidToken::NotDecimal),
            ("-1", InvalidToken::NotDecimal),
            (" 1", InvalidToken::NotDecimal),
            ("1 ", InvalidToken::NotDecimal),
            ("1 2", InvalidToken::NotDecimal),
            ("1,2", InvalidToken::NotDecimal),
            ("0x1f", InvalidToken::NotDecimal),
            ("1f", InvalidToken::NotDecimal),
            ("1e3", InvalidToken::NotDecimal),
            ("٤٢", InvalidToken::NotDecimal),
            ("9223372036854775808", InvalidToken::TooLarge),
            ("9999999999999999999", InvalidToken::TooLarge),
            ("18446744073709551617", InvalidToken::TooLarge),
        ];
        for (text, error) in refused {
            assert_eq!(Token::parse(text.as_bytes()), Err(error), "{text:?}");
        }
    }
}
