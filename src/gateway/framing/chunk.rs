//! The line before a chunk: its size, and extensions, which end at this hop (RFC 9112 §7.1).

use super::lines;
use super::violation::Violation;

/// A chunk's size in bytes; 0 for the last one.
pub(super) fn size(content: &[u8]) -> Result<u64, Violation> {
    let digits = content.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extensions) = content.split_at(digits);
    if !(1..=16).contains(&digits) {
        return Err(Violation::ChunkSize);
    }
    match extensions.trim_ascii_start().first() {
        None if extensions.is_empty() => {}
        _ if lines::first_control(extensions).is_some() => return Err(Violation::Control),
        Some(b';') if are_extensions(extensions) => {}
        Some(b';') => return Err(Violation::ChunkExtension),
        // Space at the end, or a byte that is no digit.
        _ => return Err(Violation::ChunkSize),
    }
    // No body is longer than a signed length can say, and hyper keeps the largest numbers for itself.
    let size = size.iter().fold(0, |size, digit| size << 4 | u64::from(hex(*digit)));
    i64::try_from(size).map(i64::unsigned_abs).map_err(|_| Violation::ChunkSize)
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// `*( BWS ";" BWS name [ BWS "=" BWS value ] )`
fn are_extensions(mut rest: &[u8]) -> bool {
    loop {
        if rest.is_empty() {
            return true;
        }
        let Some(after) = rest.trim_ascii_start().strip_prefix(b";") else { return false };
        let Some(after) = token(after.trim_ascii_start()) else { return false };
        rest = match after.trim_ascii_start().strip_prefix(b"=") {
            None => after,
            Some(value) => match token_or_quoted(value.trim_ascii_start()) {
                Some(after) => after,
                None => return false,
            },
        };
    }
}

/// What follows a token at the start of `text`.
fn token(text: &[u8]) -> Option<&[u8]> {
    let (token, after) = lines::token(text);
    (!token.is_empty()).then_some(after)
}

fn token_or_quoted(text: &[u8]) -> Option<&[u8]> {
    let Some(mut rest) = text.strip_prefix(b"\"") else { return token(text) };
    loop {
        rest = match rest {
            [b'"', after @ ..] => return Some(after),
            [b'\\', _, after @ ..] | [_, after @ ..] => after,
            [] => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_hexadecimal_digits_and_nothing_else() {
        for (line, bytes) in [("0", 0), ("1f", 31), ("FF", 255), ("0000000000000010", 16)] {
            assert_eq!(size(line.as_bytes()), Ok(bytes), "{line}");
        }
        for line in [
            "",
            " 1",
            "1 ",
            "1\t",
            "+1",
            "-1",
            "0x1",
            "1_0",
            "g",
            "1 1",
            "fffffffffffffffff",
            "8000000000000000",
            ";a",
        ] {
            assert_eq!(size(line.as_bytes()), Err(Violation::ChunkSize), "{line}");
        }
    }

    #[test]
    fn extensions_are_passed_over_if_they_are_some() {
        for line in ["1;a", "1;a=b", "1 ; a = \"b;\\\"c\"", "1;a;b=c", "1;a=\"\""] {
            assert_eq!(size(line.as_bytes()), Ok(1), "{line}");
        }
        for line in ["1;", "1;;a", "1;a=", "1;a=\"b", "1;a b", "1;=b", "1;a=\"b\"c", "1;a=\"b\\"] {
            assert_eq!(size(line.as_bytes()), Err(Violation::ChunkExtension), "{line}");
        }
    }
}
