//! One resource has one id: other spellings of a path lead to the same fence, or nowhere.

use crate::support::downstream::{Downstream, assert_refused};
use crate::support::gateway::Gateway;
use crate::support::http::{exchange, raw};
use crate::support::nginx::Nginx;
use crate::support::wait_until;

const SPELLINGS: [&str; 11] = [
    "/d/x~y",
    "/d/x%7Ey",
    "/d/x%7ey",
    "/%64/x~y",
    "/%64/%78%7E%79",
    "/d/x~y/",
    "/d/x~y?q=1",
    "/d/x~y?/../z",
    "/d/x~y?",
    "http://localhost/d/x~y",
    "HTTP://LOCALHOST/d/x%7ey?q",
];

#[test]
fn a_newer_token_under_one_spelling_makes_older_ones_stale_under_all() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for (at, newest) in SPELLINGS.iter().enumerate() {
        let token = 100 + at as u64;
        assert_eq!(gateway.put(newest, token, "new").status, 200, "{newest}");
        assert_eq!(api.seen().len(), at + 1);
        for other in SPELLINGS {
            let stale = gateway.put(other, token - 1, "old");
            assert_eq!(stale.code(), "stale_fencing_token", "{other} after {newest}");
            assert_eq!(stale.json()["resource"], "/d/x~y");
        }
        assert_eq!(api.seen().len(), at + 1);
    }
    assert!(api.seen().iter().all(|seen| seen.body == b"new"));
}

#[test]
fn a_path_that_servers_read_differently_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let targets: [&[u8]; 44] = [
        b"//d/x",
        b"/d//x",
        b"/d/x//",
        b"/./d/x",
        b"/d/./x",
        b"/d/x/.",
        b"/d/../x",
        b"/d/x/..",
        b"/d/%2e/x",
        b"/d/%2E%2e/x",
        b"/d/.%2e/x",
        b"/d%2Fx",
        b"/d%2fx",
        b"/d/%2F/x",
        b"/d%5Cx",
        b"/d%5cx",
        b"/d\\x",
        b"/d\\..\\x",
        b"/d/x;y",
        b"/d;v=1/x",
        b"/d/x%3By",
        b"/d/%2578",
        b"/d/%252Fx",
        b"/d/%25",
        b"/d/x%00",
        b"/d/x%00.txt",
        b"/d/x%0d%0aFencing-Token:%209",
        b"/d/x%ff",
        b"/d/x%c0%af",
        b"/d/x\xc3\xa9",
        b"/d/x\xff",
        b"/d/x%",
        b"/d/x%4",
        b"/d/x%u0041",
        b"/d/x#part",
        b"/d/x#/../y",
        b"/d/x?q#part",
        b"/d/x%00#",
        b"/d/x.",
        b"/d./x",
        b"/d/x%20",
        b"/d/x%2e",
        b"/d/%e0%80%af",
        b"/d/x%25%32%66",
    ];
    for target in targets {
        let what = String::from_utf8_lossy(target);
        for method in ["PUT", "GET"] {
            let bytes = raw(method, target, "Fencing-Token: 9\r\n", "b");
            let answer = exchange(gateway.proxy, bytes);
            assert_refused(&api, &answer, 400, &what);
            // A byte that no target has is a broken request line, not a path with two readings.
            assert_ne!(answer.code(), "malformed_fencing_token", "{what}");
        }
    }
}

#[test]
fn an_accepted_target_is_forwarded_byte_for_byte() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for (sent, forwarded) in [
        ("/d/x%7Ey", "/d/x%7Ey"),
        ("/%64/%78/", "/%64/%78/"),
        ("/d/x?", "/d/x?"),
        ("/d/x?a=/../b&c=%2F%00%zz//", "/d/x?a=/../b&c=%2F%00%zz//"),
        ("/d/caf%c3%A9+%2B", "/d/caf%c3%A9+%2B"),
        ("http://localhost/d/%78?Q", "/d/%78?Q"),
        ("http://localhost", "/"),
        ("http://localhost?q", "/?q"),
    ] {
        let before = api.seen().len();
        assert_eq!(gateway.put(sent, 9, "b").status, 200, "{sent}");
        assert_eq!(api.seen()[before].target, forwarded, "{sent}");
    }
}

#[test]
fn a_route_that_ignores_case_has_one_fence_for_all_spellings() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\n\
         [[route]]\nname = \"files\"\npath = \"/Files/{{name}}\"\nresource = \"File:{{name}}\"\n\
         case = \"ignore\"\ntokens = \"ordered\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n",
        api.address
    ));
    let spellings =
        ["/files/a%c3%a9k", "/FILES/A%C3%89K", "/Files/a%C3%89%E2%84%AA", "/f%49les/%41%c3%a9k/"];
    for (at, newest) in spellings.iter().enumerate() {
        let token = 100 + at as u64;
        assert_eq!(gateway.put(newest, token, "new").status, 200, "{newest}");
        for other in spellings {
            let stale = gateway.put(other, token - 1, "old");
            assert_eq!(stale.code(), "stale_fencing_token", "{other} after {newest}");
            assert_eq!(stale.json()["resource"], "File:a\u{e9}k");
        }
    }
    let targets: Vec<_> = api.seen().into_iter().map(|seen| seen.target).collect();
    assert_eq!(targets, spellings, "as they came");
    // The other route still tells case apart.
    assert_eq!(gateway.put("/Other/x", 9, "b").status, 200);
    assert_eq!(gateway.put("/other/x", 8, "b").status, 200);
}

#[test]
fn a_target_that_is_no_path_or_names_another_host_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for (method, target) in [
        ("PUT", "http://other/d/x"),
        ("PUT", "http://localhost:81/d/x"),
        ("PUT", "http://user@test/d/x"),
        ("PUT", "http://localhost//d/x"),
        ("PUT", "http://localhost/d/../x"),
        ("PUT", "test:80"),
        ("PUT", "d/x"),
        ("PUT", "*"),
        ("OPTIONS", "*"),
        ("PUT", "?q"),
        ("PUT", "#part"),
    ] {
        let bytes = raw(method, target.as_bytes(), "Fencing-Token: 9\r\n", "b");
        assert_refused(&api, &exchange(gateway.proxy, bytes), 400, target);
    }
}

/// What targets are made of, so that chance finds what nobody thought of.
const PIECES: [&[u8]; 38] = [
    b"/",
    b"/",
    b"/",
    b"//",
    b"/./",
    b"/../",
    b"%2F",
    b"%2f",
    b"a",
    b"a",
    b"%61",
    b"b",
    b"%62",
    b"A",
    b".",
    b"..",
    b"%2e",
    b"%2E",
    b";x",
    b"\\",
    b"%5c",
    b"%25",
    b"%00",
    b"\xc3\xa9",
    b"%C3%A9",
    b"%c3%a9",
    b"%20",
    b"+",
    b"%2B",
    b"?q",
    b"#f",
    b"%3f",
    b"%23",
    b"~",
    b"%7e",
    b"%c0%af",
    b":",
    b"&=",
];

#[test]
fn whatever_spelling_is_accepted_nginx_stores_it_under_the_name_of_the_resource() {
    let nginx = Nginx::start();
    let gateway = Gateway::ordered(nginx.address, "");
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut stored, mut accepted) = (0, Vec::new());
    for token in 1..600_u64 {
        let mut target = b"/".to_vec();
        for _ in 0..=chance % 7 {
            // xorshift64: the same targets in every run.
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            let piece = usize::try_from(chance >> 33).expect("31 bits") % PIECES.len();
            target.extend_from_slice(PIECES[piece]);
        }
        let what = String::from_utf8_lossy(&target).into_owned();
        nginx.clear();
        let fields = format!("Fencing-Token: {token}\r\n");
        let answer = exchange(gateway.proxy, raw("PUT", &target, &fields, "content"));
        if answer.header("content-type") == Some("application/problem+json") {
            assert_eq!(answer.outcome(), "not_forwarded", "{what}");
            assert_eq!(nginx.stored(), [], "{what}");
            continue;
        }
        accepted.push(Some(token));
        let fences = gateway.admin("/v1/fences?limit=1000").json();
        let mark = serde_json::json!(token.to_string());
        let of_this = fences["fences"].as_array().expect("a list").iter();
        let resources: Vec<_> = of_this
            .filter(|fence| fence["highest_token"] == mark)
            .map(|fence| fence["resource"].as_str().expect("a name").to_owned())
            .collect();
        assert_eq!(resources.len(), 1, "{what}");
        if (200..300).contains(&answer.status) {
            stored += 1;
            assert_eq!(nginx.stored(), [(resources[0].clone(), b"content".to_vec())], "{what}");
        }
    }
    wait_until("nginx has logged", || nginx.accesses().len() >= accepted.len());
    let tokens: Vec<_> = nginx.accesses().iter().map(|access| access.token).collect();
    assert_eq!(tokens, accepted, "each once, in order, and nothing that was refused");
    assert!(stored > 50, "chance was unkind: {stored}");
}
