use std::collections::HashMap;

use super::tolerant::{SERVERS, Server, accepted};
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
        ("/a./b", Ambiguous::CutEnd),
        ("/a...", Ambiguous::CutEnd),
        ("/a%20", Ambiguous::CutEnd),
        ("/a%2E/", Ambiguous::CutEnd),
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

#[test]
fn folding_case_makes_no_path_of_another_shape() {
    let special = |c: char| "/.;%\\?# ".contains(c) || c.is_control();
    for c in ('\0'..=char::MAX).filter(|c| !special(*c)) {
        let folded = without_case(&c.to_string());
        assert!(!folded.is_empty() && !folded.contains(special), "{c:?} becomes {folded:?}");
        assert_eq!(without_case(&folded), folded, "{c:?}");
    }
    assert_eq!(without_case("/ÀſK/x"), "/àsk/x");
}

/// What targets are made of: everything that some server folds, and what it may be folded to.
const PIECES: [&[u8]; 45] = [
    b"/",
    b"//",
    b"a",
    b"b",
    b"A",
    b".",
    b"..",
    b"/./",
    b"/../",
    b"%2e",
    b"%2E",
    b"%2f",
    b"%2F",
    b"%5c",
    b"\\",
    b"%61",
    b"%62",
    b";",
    b";x=1",
    b"%3b",
    b"%25",
    b"%252e",
    b"%252f",
    b"%00",
    b"%u002f",
    b"%c0%af",
    b"%c0%ae",
    b"%e0%80%af",
    b"\xc0\xaf",
    b"%c3%a9",
    b"%C3%A9",
    b"\xc3\xa9",
    b"%ff",
    b"?",
    b"?/../b",
    b"%3f",
    b"#",
    b"#/../b",
    b"%23",
    b"%20",
    b"+",
    b"~",
    b"%7e",
    b"%",
    b"%0a",
];

/// To this resource, by this target.
type Led = (String, Vec<u8>);

/// Targets that a server takes for one path, and what the gateway makes of them.
#[derive(Default)]
struct Seen {
    /// By server and the path that it serves.
    resources: HashMap<(&'static str, Vec<u8>), Led>,
    accepted: usize,
}

impl Seen {
    fn add(&mut self, target: &[u8]) {
        let Some(resource) = accepted(target) else { return };
        self.accepted += 1;
        for Server { name, serve } in SERVERS {
            let Some(path) = serve(target) else { continue };
            // A slash at the end is left to the server, and makes no other resource.
            let path = path.strip_suffix(b"/").map(<[u8]>::to_vec).unwrap_or(path);
            let (first, other) = self
                .resources
                .entry((*name, path))
                .or_insert_with(|| (resource.clone(), target.to_vec()));
            assert_eq!(
                *first,
                resource,
                "{name} serves one thing for {:?} and {:?}",
                String::from_utf8_lossy(target),
                String::from_utf8_lossy(other)
            );
        }
    }
}

#[test]
fn what_a_tolerant_server_takes_for_one_path_is_one_resource_or_refused() {
    let mut seen = Seen::default();
    // All that are made of up to three pieces, the shortest first, so that what fails is the least.
    for length in 1..=3_u32 {
        for mut number in 0..PIECES.len().pow(length) {
            let mut target = b"/".to_vec();
            for _ in 0..length {
                target.extend_from_slice(PIECES[number % PIECES.len()]);
                number /= PIECES.len();
            }
            seen.add(&target);
        }
    }
    // And longer ones by chance, the same in every run.
    let mut chance = fastrand::Rng::with_seed(5);
    for _ in 0..50_000 {
        let mut target = b"/".to_vec();
        for _ in 0..chance.usize(4..10) {
            target.extend_from_slice(PIECES[chance.usize(..PIECES.len())]);
        }
        seen.add(&target);
    }
    assert!(seen.accepted > 2_000, "hardly anything is accepted: {}", seen.accepted);
}

#[test]
fn what_the_servers_fold_is_folded_in_the_test() {
    let serves = |name: &str, target: &str| {
        let server = SERVERS.iter().find(|server| server.name == name).expect("it is listed");
        (server.serve)(target.as_bytes()).map(|path| String::from_utf8_lossy(&path).into_owned())
    };
    for (name, target, path) in [
        ("nginx", "/a//b/./c/../d%2f..%2fe?q", "/a/b/e"),
        ("Apache httpd", "/a%2fb//c", "/a/b/c"),
        ("Tomcat", "/a;x=1/..;y/b", "/b"),
        ("Tomcat", "/a\\b", "/a/b"),
        ("Spring", "/a%3bx/b", "/a/b"),
        ("IIS", "/a%5cb./c%20", "/a/b/c"),
        ("IIS", "/a%252fb", "/a/b"),
        ("IIS", "/a%u002fb", "/a/b"),
        ("Go", "/a/../b%2F/c", "/b/c"),
        ("Node", "/a\\.%2e\\b", "/b"),
        ("Python", "/a%2fb//c#d", "/a/b/c"),
        ("CGI", "/a%00.txt", "/a"),
        ("overlong", "/a%c0%af%c0%ae%c0%ae%c0%afb", "/b"),
    ] {
        assert_eq!(serves(name, target).as_deref(), Some(path), "{name} {target}");
    }
}
