//! One line of a head: where it ends, and the request line or header field that it is. Pure functions of bytes.

use super::violation::Violation;

/// A header field, as far as it says where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Length(u64),
    Chunked,
    Other,
}

/// A line's content, without the CR LF at its end. `line` ends with LF.
pub(super) fn content(line: &[u8]) -> Result<&[u8], Violation> {
    line.strip_suffix(b"\r\n").ok_or(Violation::BareLineFeed)
}

/// Whether the request is one of HTTP/1.1, and not of 1.0.
pub(super) fn request_line(content: &[u8]) -> Result<bool, Violation> {
    let (method, rest) = token(content);
    let (target, is_http_11) = match rest.strip_suffix(b" HTTP/1.1") {
        Some(target) => (target, true),
        None => (rest.strip_suffix(b" HTTP/1.0").ok_or(Violation::RequestLine)?, false),
    };
    let Some(target @ [_, ..]) = target.strip_prefix(b" ") else {
        return Err(Violation::RequestLine);
    };
    match memchr::memchr3(b' ', b'\t', b'#', target) {
        _ if method.is_empty() => Err(Violation::RequestLine),
        None => Ok(is_http_11),
        Some(at) if target[at] == b'#' => Err(Violation::Fragment),
        Some(_) => Err(Violation::RequestLine),
    }
}

/// A field of a head.
pub(super) fn field(content: &[u8]) -> Result<Field, Violation> {
    let (name, value) = name_and_value(content)?;
    if name.eq_ignore_ascii_case(b"content-length") {
        return decimal(value.trim_ascii()).map(Field::Length).ok_or(Violation::ContentLength);
    }
    if name.eq_ignore_ascii_case(b"transfer-encoding") {
        let is_chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
        return if is_chunked { Ok(Field::Chunked) } else { Err(Violation::TransferEncoding) };
    }
    Ok(Field::Other)
}

/// A field of a trailer section, which says nothing to this hop and goes no further.
pub(super) fn trailer(content: &[u8]) -> Result<(), Violation> {
    name_and_value(content).map(|_| ())
}

fn name_and_value(content: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    match token(content) {
        ([], [b' ' | b'\t', ..]) => Err(Violation::Folded),
        (name @ [_, ..], [b':', value @ ..]) => Ok((name, value)),
        _ => Err(Violation::FieldName),
    }
}

/// As RFC 9110 §8.6 has it: digits alone. Up to 18 of them are more bytes than anybody sends.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// The token (RFC 9110 §5.6.2) at the start of `text`, which may be empty, and what follows it.
pub(super) fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let is_other = |byte: &u8| !IN_TOKEN[usize::from(*byte)];
    text.split_at(text.iter().position(is_other).unwrap_or(text.len()))
}

/// Where the line at the start of `text` ends, behind its CR LF; `None` while that is not here. `is_after_cr`: what
/// came before `text` ended with a CR.
pub(super) fn end(is_after_cr: bool, text: &[u8]) -> Result<Option<usize>, Violation> {
    if is_after_cr {
        return if text.starts_with(b"\n") { Ok(Some(1)) } else { Err(Violation::Control) };
    }
    let Some(at) = first_control(text) else { return Ok(None) };
    match text[at..] {
        [b'\r', b'\n', ..] => Ok(Some(at + 2)),
        [b'\r'] => Ok(None),
        [b'\n', ..] => Err(Violation::BareLineFeed),
        _ => Err(Violation::Control),
    }
}

/// Where the first control character other than a tab is. Eight bytes at once, since every byte of every head
/// goes through here.
pub(super) fn first_control(text: &[u8]) -> Option<usize> {
    let is_control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    let (words, rest) = text.as_chunks::<8>();
    for (word, at) in words.iter().zip((0..).step_by(8)) {
        let suspects = suspects(u64::from_le_bytes(*word));
        if suspects == 0 {
            continue;
        }
        // Only the first suspect is certainly one, and it may be a tab.
        let first = (suspects.trailing_zeros() / 8) as usize;
        if word[first] != b'\t' {
            return Some(at + first);
        }
        if let Some(within) = word.iter().position(is_control) {
            return Some(at + within);
        }
    }
    rest.iter().position(is_control).map(|within| words.len() * 8 + within)
}

/// The highest bit of each byte of `word` that is below 0x20 or 0x7f; and perhaps of some bytes above the lowest of those.
const fn suspects(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let below = word.wrapping_sub(ONES * 0x20) & !word;
    let apart = word ^ (ONES * 0x7f);
    let delete = apart.wrapping_sub(ONES) & !apart;
    (below | delete) & (ONES * 0x80)
}

const IN_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte: u8 = 0;
    while byte < 0x80 {
        let is_mark = matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        );
        table[byte as usize] = is_mark || byte.is_ascii_alphanumeric();
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_control_character_is_found_wherever_it_is() {
        for byte in 0..=u8::MAX {
            let is_control = byte.is_ascii_control() && byte != b'\t';
            for length in 1..20 {
                for at in 0..length {
                    for filler in [b'a', 0x80, 0xff, b'\t', b' ', 0x7e] {
                        let mut text = vec![filler; length];
                        text[at] = byte;
                        let found = is_control.then_some(at);
                        assert_eq!(first_control(&text), found, "{byte} at {at} of {length}");
                        // Whatever follows it.
                        text.extend_from_slice(b"\r\n\0\x7f\t...");
                        let found = found.unwrap_or(length);
                        assert_eq!(first_control(&text), Some(found), "{byte} at {at} of {length}");
                    }
                }
            }
        }
    }
}
