//! One line of a head: the request line, or a header field. Pure functions of its bytes.

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
    let Some(content) = line.strip_suffix(b"\r\n") else { return Err(Violation::BareLineFeed) };
    // Not `any`, which would look at byte after byte: this is done to many at once.
    let has_control = content
        .iter()
        .fold(false, |has, &byte| has | (byte < b' ') & (byte != b'\t') | (byte == 0x7f));
    if has_control { Err(Violation::Control) } else { Ok(content) }
}

/// Whether the request is one of HTTP/1.1, and not of 1.0.
pub(super) fn request_line(content: &[u8]) -> Result<bool, Violation> {
    let space = memchr::memchr(b' ', content).ok_or(Violation::RequestLine)?;
    let (method, rest) = (&content[..space], &content[space + 1..]);
    let (target, is_http_11) = match rest.strip_suffix(b" HTTP/1.1") {
        Some(target) => (target, true),
        None => (rest.strip_suffix(b" HTTP/1.0").ok_or(Violation::RequestLine)?, false),
    };
    if !is_token(method) || target.is_empty() {
        return Err(Violation::RequestLine);
    }
    match memchr::memchr3(b' ', b'\t', b'#', target) {
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
    if matches!(content.first(), Some(b' ' | b'\t')) {
        return Err(Violation::Folded);
    }
    let colon = memchr::memchr(b':', content).ok_or(Violation::FieldName)?;
    let name = &content[..colon];
    if is_token(name) { Ok((name, &content[colon + 1..])) } else { Err(Violation::FieldName) }
}

/// As RFC 9110 §8.6 has it: digits alone. Up to 18 of them are more bytes than anybody sends.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// RFC 9110 §5.6.2.
pub(super) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| IN_TOKEN[usize::from(*byte)])
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
