//! One path, one spelling: the normal form of a request target, or why it has none.
//!
//! Servers differ in what they fold: doubled slashes, dot segments, encoded slashes, backslashes,
//! `;parameters`, NUL, doubly encoded bytes. Whatever any of them might fold is refused; all that
//! is left is percent-encoding of harmless characters, which every server decodes alike and which
//! is decoded here to make the path that routes and resources are derived from. The target itself
//! is forwarded as it came.

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
    let mut segments = path[1..].split('/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "" if segments.peek().is_some() => return Err(Ambiguous::EmptySegment),
            "." | ".." => return Err(Ambiguous::DotSegment),
            _ => {}
        }
    }
    Ok(())
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
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_path_have_one_normal_form() {
        for spelling in ["/a/bc", "/a/b%63", "/%61/bc", "/a/bc/", "/%61%2fbc"] {
            match normal_path(spelling) {
                Ok(path) => assert_eq!(path, "/a/bc", "{spelling}"),
                Err(error) => assert_eq!(error, Ambiguous::HiddenSlash, "{spelling}"),
            }
        }
        assert_eq!(normal_path("/caf%C3%A9"), normal_path("/caf%c3%a9"));
        assert_eq!(normal_path("/a@b").unwrap(), normal_path("/a%40b").unwrap());
        assert_eq!(normal_path("/").unwrap(), "/");
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        let refused = [
            ("*", Ambiguous::NotAPath),
            ("a", Ambiguous::NotAPath),
            ("//a", Ambiguous::EmptySegment),
            ("/a//b", Ambiguous::EmptySegment),
            ("/a//", Ambiguous::EmptySegment),
            ("/a/./b", Ambiguous::DotSegment),
            ("/a/..", Ambiguous::DotSegment),
            ("/a/%2e%2E/b", Ambiguous::DotSegment),
            ("/a/.%2e", Ambiguous::DotSegment),
            ("/a%2Fb", Ambiguous::HiddenSlash),
            ("/a%2fb", Ambiguous::HiddenSlash),
            ("/a%5cb", Ambiguous::HiddenSlash),
            ("/a\\b", Ambiguous::HiddenSlash),
            ("/a;x", Ambiguous::Parameter),
            ("/a%3Bx", Ambiguous::Parameter),
            ("/a%252Fb", Ambiguous::DoubleEncoding),
            ("/a%", Ambiguous::BrokenEscape),
            ("/a%4", Ambiguous::BrokenEscape),
            ("/a%zz", Ambiguous::BrokenEscape),
            ("/a%00", Ambiguous::Control),
            ("/a%0d%0ab", Ambiguous::Control),
            ("/a%ff", Ambiguous::NotUtf8),
            ("/a%c0%af", Ambiguous::NotUtf8),
            ("/é", Ambiguous::NotUtf8),
        ];
        for (target, error) in refused {
            assert_eq!(normal_path(target), Err(error), "{target}");
        }
    }
}
