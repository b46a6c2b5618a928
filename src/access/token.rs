//! Bearer tokens. The gateway keeps only their SHA-256: they are long and random, so a slow hash
//! would protect nothing that a fast one does not.

use std::fmt;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// What all tokens of our making begin with, so that scanners for leaked secrets find them.
pub const TOKEN_PREFIX: &str = "fgt_";
const RANDOM_BYTES: usize = 32;

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token as it is presented.
    #[must_use]
    pub fn of(token: &[u8]) -> TokenHash {
        TokenHash(Sha256::digest(token).into())
    }

    /// Reads 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<TokenHash> {
        let mut hash = [0; 32];
        let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = [pair[0], pair[1]].map(|digit| char::from(digit).to_digit(16));
            *byte = u8::try_from(high? << 4 | low?).ok()?;
        }
        Some(TokenHash(hash))
    }
}

/// Takes as long for a near miss as for a far one.
impl ConstantTimeEq for TokenHash {
    fn ct_eq(&self, other: &TokenHash) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

/// A new token of 256 random bits.
///
/// # Errors
/// The system has no randomness to give.
pub fn new_token() -> Result<String, getrandom::Error> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random)?;
    let mut token = TOKEN_PREFIX.to_owned();
    for byte in random {
        write!(token, "{byte:02x}").expect("a String takes all");
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_sha256sum() {
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::of(b"abc").to_string(), hash);
        assert_eq!(TokenHash::parse(&hash.to_ascii_uppercase()), Some(TokenHash::of(b"abc")));
        for wrong in ["", "abc", &hash[1..], &format!("{hash}0"), &hash.replace('b', "g")] {
            assert_eq!(TokenHash::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn no_two_tokens_are_alike() {
        let token = new_token().unwrap();
        assert_eq!(token.len(), TOKEN_PREFIX.len() + 64);
        assert_ne!(token, new_token().unwrap());
    }
}
