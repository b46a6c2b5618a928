//! Servers that fold more than they should: models of what nginx, Apache httpd, Tomcat, IIS, Go, Node and Python, in
//! their most tolerant configurations and with the habits of what runs on them, take a target for.
//!
//! They are no copies: each is a list of foldings that such a server is known for, in its order. The targets that the
//! gateway accepts have to be out of reach of all of them.

use super::normal_path;

/// A server, by the path that it serves for a target; `None` if it refuses the target.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) serve: fn(&[u8]) -> Option<Vec<u8>>,
}

pub(crate) const SERVERS: &[Server] = &[
    Server {
        name: "nginx",
        serve: |target| resolve(&merge(&decode(cut(target, b"?#"), Broken::Refused)?)),
    },
    Server {
        // AllowEncodedSlashes On
        name: "Apache httpd",
        serve: |target| resolve(&merge(&decode(cut(target, b"?"), Broken::Refused)?)),
    },
    Server {
        // ALLOW_BACKSLASH, encodedSolidusHandling=decode
        name: "Tomcat",
        serve: |target| {
            let path = decode(&parameters(cut(target, b"?")), Broken::Refused)?;
            resolve(&merge(&slashes(path)))
        },
    },
    Server {
        name: "Spring",
        serve: |target| {
            let path = decode(cut(target, b"?"), Broken::Refused)?;
            resolve(&merge(&parameters(&path)))
        },
    },
    Server {
        // Decodes twice, as it once did, %u as well; names as Windows' file systems have them.
        name: "IIS",
        serve: |target| {
            let once = decode(&unicode_escapes(cut(target, b"?")), Broken::Kept)?;
            let path = slashes(decode(&once, Broken::Kept)?);
            Some(windows_names(&resolve(&merge(&path))?))
        },
    },
    Server {
        name: "Go",
        serve: |target| resolve(&merge(&decode(cut(target, b"?"), Broken::Refused)?)),
    },
    Server {
        // new URL(target, …), and decodeURIComponent on what is left
        name: "Node",
        serve: |target| {
            let whole: Vec<u8> =
                cut(target, b"?#").iter().copied().filter(|b| !b"\t\n\r".contains(b)).collect();
            let path = decode_dots(&slashes(whole));
            let decoded = decode(&resolve(&path)?, Broken::Refused)?;
            String::from_utf8(decoded).ok().map(String::into_bytes)
        },
    },
    Server {
        // urllib's unquote, which replaces what is no UTF-8; posixpath.normpath
        name: "Python",
        serve: |target| {
            let decoded = decode(cut(target, b"?#"), Broken::Kept)?;
            resolve(&merge(String::from_utf8_lossy(&decoded).as_bytes()))
        },
    },
    Server {
        // Whatever hands the path on as a C string.
        name: "CGI",
        serve: |target| {
            let decoded = decode(cut(target, b"?"), Broken::Kept)?;
            resolve(&merge(cut(&decoded, b"\0")))
        },
    },
    Server {
        // Whatever reads UTF-8 without looking whether it is the shortest form.
        name: "overlong",
        serve: |target| {
            let decoded = decode(cut(target, b"?"), Broken::Kept)?;
            resolve(&merge(&slashes(shortest_forms(&decoded))))
        },
    },
];

/// The resource that the gateway derives from a target as it came; `None` if it refuses it. The same steps as a
/// request takes: the scan refuses `#`, hyper parses, the path is judged.
pub(crate) fn accepted(target: &[u8]) -> Option<String> {
    if target.contains(&b'#') {
        return None;
    }
    let uri = http::Uri::try_from(target).ok()?;
    normal_path(uri.path()).ok().map(Into::into)
}

/// What to make of a `%` without two digits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Refused,
    Kept,
}

/// What is before the first of `ends`.
fn cut<'t>(target: &'t [u8], ends: &[u8]) -> &'t [u8] {
    target.split(|byte| ends.contains(byte)).next().unwrap_or_default()
}

fn decode(path: &[u8], broken: Broken) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, escaped(after)) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                rest = &after[2..];
            }
            (b'%', None) if broken == Broken::Refused => return None,
            _ => decoded.push(*first),
        }
    }
    Some(decoded)
}

fn escaped(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits.get(..2)?).ok()?;
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(text, 16).ok())?
}

/// `%uXXXX`
fn unicode_escapes(path: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(path);
    let mut parts = text.split("%u");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match digits.and_then(char::from_u32) {
            Some(c) => whole.extend([c].into_iter().chain(part[4..].chars())),
            None => whole.extend(["%u", part]),
        }
    }
    whole.into_bytes()
}

fn slashes(mut path: Vec<u8>) -> Vec<u8> {
    path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    path
}

/// `/a;x=1/b` is `/a/b`.
fn parameters(path: &[u8]) -> Vec<u8> {
    let segments: Vec<_> =
        path.split(|byte| *byte == b'/').map(|segment| cut(segment, b";")).collect();
    segments.join(&b'/')
}

fn merge(path: &[u8]) -> Vec<u8> {
    let mut merged = path.to_vec();
    merged.dedup_by(|one, other| *one == b'/' && *other == b'/');
    merged
}

/// Resolves dot segments; `None` above the root.
fn resolve(path: &[u8]) -> Option<Vec<u8>> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path.strip_prefix(b"/")?.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." => {}
            b".." => {
                kept.pop()?;
            }
            segment => {
                kept.push(segment);
                continue;
            }
        }
        if is_last {
            kept.push(b"");
        }
    }
    Some([b"/", kept.join(&b'/').as_slice()].concat())
}

fn decode_dots(path: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(path).into_owned();
    let segments = text.split('/').map(|segment| {
        let dots = segment.to_ascii_lowercase().replace("%2e", ".");
        if matches!(dots.as_str(), "." | "..") { dots } else { segment.to_owned() }
    });
    segments.collect::<Vec<_>>().join("/").into_bytes()
}

/// Without dots and spaces at the ends of names.
fn windows_names(path: &[u8]) -> Vec<u8> {
    let name = |segment: &[u8]| -> Vec<u8> {
        let end = segment.iter().rposition(|byte| !b". ".contains(byte)).map_or(0, |last| last + 1);
        segment[..end].to_vec()
    };
    path.split(|byte| *byte == b'/').map(name).collect::<Vec<_>>().join(&b'/')
}

/// Bytes of two and three that stand for one, made one.
fn shortest_forms(path: &[u8]) -> Vec<u8> {
    let mut short = Vec::new();
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (*first, after) {
            (first @ (0xc0 | 0xc1), [second @ 0x80..=0xbf, ..]) => {
                short.push((first & 1) << 6 | (second & 0x3f));
                rest = &after[1..];
            }
            (0xe0, [second @ (0x80 | 0x81), third @ 0x80..=0xbf, ..]) => {
                short.push((second & 1) << 6 | (third & 0x3f));
                rest = &after[2..];
            }
            (first, _) => short.push(first),
        }
    }
    short
}
