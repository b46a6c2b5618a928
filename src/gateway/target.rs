//! One path, one spelling: the normal form of a request target, or why it has none.
//!
//! Servers differ in what they fold: doubled slashes, dot segments, encoded slashes, backslashes,
//! `;parameters`, NUL, doubly encoded bytes, dots and spaces at a name's end. Whatever any of them might fold is
//! refused; all that is left is percent-encoding of harmless characters, which every server decodes alike and which
//! is decoded here to make the path that routes and resources are derived from. The target itself
//! is forwarded as it came. `docs/targets.md` is the page on it.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// Why a target is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Ambiguous {
    /// The target is not a path.
    #[error("the request target is not a path that begins with /")]
    NotAPath,
    /// `//`
    #[error("the path has an empty segment (//)")]
    EmptySegment,
    /// `/./` or `/../`
    #[error("the path has a dot segment (. or ..)")]
    DotSegment,
    /// `/name.` or `/name%20`
    #[error("a segment of the path ends with a dot or a space (some servers cut them off there)")]
    CutEnd,
    /// `%2F`, `%5C`, or a plain backslash
    #[error("the path has a backslash, or a slash or backslash in percent-encoding")]
    HiddenSlash,
    /// `;`
    #[error("the path has a ; (some servers cut parameters off there)")]
    Parameter,
    /// `%25` before what reads as another escape
    #[error("the path is percent-encoded twice")]
    DoubleEncoding,
    /// `%` without two hexadecimal digits
    #[error("the path has a % that is not followed by two hexadecimal digits")]
    BrokenEscape,
    /// A control character or NUL
    #[error("the path has a control character")]
    Control,
    /// Not UTF-8
    #[error("the path, percent-decoded, is not UTF-8, or has bytes that must be percent-encoded")]
    NotUtf8,
}

/// The decoded path, without a trailing slash (`/` itself excepted): servers that tell `/a/` from
/// `/a` are served well by one fence for both, servers that do not need it.
///
/// # Errors
/// Another server could read another path in it.
pub(super) fn normal_path(path: &str) -> Result<Cow<'_, str>, Ambiguous> {
    if !path.starts_with('/') {
        return Err(Ambiguous::NotAPath);
    }
    let decoded = decode(path)?;
    check_segments(&decoded)?;
    Ok(without_trailing_slash(decoded))
}

fn decode(path: &str) -> Result<Cow<'_, str>, Ambiguous> {
    let mut has_escape = false;
    for byte in path.bytes() {
        match byte {
            b'%' => has_escape = true,
            b'\\' => return Err(Ambiguous::HiddenSlash),
            b';' => return Err(Ambiguous::Parameter),
            0..=0x20 | 0x7f => return Err(Ambiguous::Control),
            0x80.. => return Err(Ambiguous::NotUtf8),
            _ => {}
        }
    }
    if !has_escape {
        return Ok(Cow::Borrowed(path));
    }
    check_escapes(path.as_bytes())?;
    let decoded = percent_decode(path.as_bytes()).decode_utf8().map_err(|_| Ambiguous::NotUtf8)?;
    if decoded.chars().any(char::is_control) {
        return Err(Ambiguous::Control);
    }
    Ok(decoded)
}

fn check_escapes(path: &[u8]) -> Result<(), Ambiguous> {
    for at in (0..path.len()).filter(|at| path[*at] == b'%') {
        let byte = escape(&path[at..]).ok_or(Ambiguous::BrokenEscape)?;
        match byte {
            b'/' | b'\\' => return Err(Ambiguous::HiddenSlash),
            b';' => return Err(Ambiguous::Parameter),
            // Decoded once this is text with a percent sign; decoded twice it is something else.
            b'%' => return Err(Ambiguous::DoubleEncoding),
            _ => {}
        }
    }
    Ok(())
}

/// The byte that `%XX` at the start of `text` stands for.
fn escape(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

fn check_segments(path: &str) -> Result<(), Ambiguous> {
    let bytes = path.as_bytes();
    // By what stands before each slash and at the end.
    for end in (1..=bytes.len()).filter(|at| bytes.get(*at).is_none_or(|byte| *byte == b'/')) {
        match bytes[..end] {
            [.., b'/'] if end < bytes.len() => return Err(Ambiguous::EmptySegment),
            [.., b'/', b'.'] | [.., b'/', b'.', b'.'] => return Err(Ambiguous::DotSegment),
            [.., b'.' | b' '] => return Err(Ambiguous::CutEnd),
            _ => {}
        }
    }
    Ok(())
}

/// A path, or a part of one, for a route that ignores case: what differs in nothing but case becomes the same. Through
/// upper case and back, character by character, since there are more than two cases: `ſ` is a small `S`, and `ẞ` two of them.
pub(super) fn without_case(path: &str) -> String {
    let lower = path.chars().flat_map(char::to_lowercase);
    lower.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

fn without_trailing_slash(path: Cow<'_, str>) -> Cow<'_, str> {
    if path.len() < 2 || !path.ends_with('/') {
        return path;
    }
    match path {
        Cow::Borrowed(path) => Cow::Borrowed(&path[..path.len() - 1]),
        Cow::Owned(mut path) => {
            path.pop();
            Cow::Owned(path)
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tolerant;
