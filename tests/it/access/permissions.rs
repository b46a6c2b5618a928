//! Each verb, and its refusal.

use super::{Guarded, entry, hash_of, root, token_of};
use crate::support::downstream::Downstream;
use crate::support::http::{Answer, assert_problem, send};
use crate::support::wait_until;

const VERBS: [&str; 8] = [
    "lease.acquire",
    "lease.renew",
    "lease.release",
    "lease.read",
    "admin.read",
    "admin.metrics",
    "admin.raise",
    "admin.adopt",
];

/// Everything that can be asked, with the verb that it takes.
fn everything(guarded: &Guarded, name: &str) -> Vec<(&'static str, Answer)> {
    let renew = "{\"owner\":\"a\",\"token\":\"1\"}";
    vec![
        ("lease.acquire", guarded.acquire(name, "r", "a")),
        ("lease.renew", guarded.leases(name, "POST", "/v1/leases/r/renew", renew)),
        ("lease.release", guarded.leases(name, "DELETE", "/v1/leases/none?owner=a&token=9", "")),
        ("lease.read", guarded.leases(name, "GET", "/v1/leases/r", "")),
        ("lease.read", guarded.leases(name, "GET", "/v1/leases", "")),
        ("admin.read", guarded.admin(name, "GET", "/v1/fences", "")),
        ("admin.read", guarded.admin(name, "GET", "/v1/fences/r", "")),
        ("admin.read", guarded.admin(name, "GET", "/v1/in-doubt", "")),
        ("admin.read", guarded.admin(name, "GET", "/v1/coordinator", "")),
        ("admin.metrics", guarded.admin(name, "GET", "/metrics", "")),
        ("admin.raise", guarded.admin(name, "POST", "/v1/fences/r", "{\"token\":\"7\"}")),
        ("admin.adopt", guarded.admin(name, "POST", "/v1/coordinator/adopt", "")),
    ]
}

#[test]
fn each_verb_is_granted_by_itself_and_refuses_all_others() {
    let api = Downstream::start();
    let of_verb = |verb: &&str| {
        let rest = format!("may = [\"{verb}\"]\nresources = [\"*\"]\nowners = [\"*\"]");
        entry(&verb.replace('.', "-"), &rest)
    };
    let credentials: String = VERBS.iter().map(of_verb).collect::<String>() + &root();
    let guarded = Guarded::start(api.address, &credentials, "");
    for verb in VERBS {
        for (needs, answer) in everything(&guarded, &verb.replace('.', "-")) {
            if needs == verb {
                assert!(![401, 403].contains(&answer.status), "{verb}: {answer:?}");
            } else {
                assert_problem(&answer, 403, "forbidden", "not_forwarded");
                assert_eq!(answer.header("x-should-retry"), Some("false"));
                assert!(answer.json()["detail"].as_str().unwrap().contains(needs), "{answer:?}");
            }
        }
    }
}

#[test]
fn who_is_unknown_may_nothing_and_changes_nothing() {
    let api = Downstream::start();
    let guarded = Guarded::start(api.address, &root(), "");
    assert_eq!(guarded.acquire("root", "r", "a").status, 201);
    assert_eq!(guarded.admin("root", "POST", "/v1/fences/r", "{\"token\":\"5\"}").status, 200);
    let before = guarded.state();
    let refused = everything(&guarded, "stranger");
    for (verb, answer) in &refused {
        assert_problem(answer, 401, "unauthenticated", "not_forwarded");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"fencegate\""), "{verb}");
    }
    for (to, target) in [
        (guarded.gateway.leases, "/v1/leases/r?owner=a&token=1"),
        (guarded.gateway.leases, "/nothing"),
        (guarded.gateway.admin, "/v1/fences"),
        (guarded.gateway.admin, "/metrics"),
    ] {
        let answer = send(to, "DELETE", target, &[], b"");
        assert_problem(&answer, 401, "unauthenticated", "not_forwarded");
    }
    // The hash is no token, and neither is the token of another scheme.
    for field in [hash_of("root"), format!("Basic {}", token_of("root")), token_of("root")] {
        let fields = [("Authorization", field.as_str())];
        assert_eq!(send(guarded.gateway.admin, "GET", "/metrics", &fields, b"").status, 401);
    }
    assert_eq!(guarded.state(), before);
    let expected = (6 - 1 + 2, 7 + 2 + 3);
    let found = (
        guarded.refusals("leases", "unauthenticated"),
        guarded.refusals("admin", "unauthenticated"),
    );
    assert_eq!(found, expected);
}

#[test]
fn a_worker_gets_its_own_resources_under_its_own_names_only() {
    let api = Downstream::start();
    let worker = |name: &str| {
        let may = "may = [\"lease.acquire\", \"lease.renew\", \"lease.release\"]";
        entry(name, &format!("{may}\nresources = [\"job:*\", \"exact\"]"))
    };
    let credentials = worker("ann") + &worker("bob") + &root();
    let guarded = Guarded::start(api.address, &credentials, "");
    assert_eq!(guarded.acquire("ann", "exact", "ann").status, 201);
    let mine = guarded.acquire("ann", "job:1", "ann:host:7");
    assert_eq!(mine.status, 201);
    let token = mine.json()["token"].as_str().unwrap().to_owned();
    let before = guarded.state();

    for (resource, owner) in [
        ("other", "ann"),
        ("exactly", "ann"),
        ("job", "ann"),
        ("job:1", "bob"),
        ("job:2", "ann2"),
        ("job:2", "bob:ann"),
    ] {
        let answer = guarded.acquire("ann", resource, owner);
        assert_problem(&answer, 403, "forbidden", "not_forwarded");
        assert_eq!(answer.json()["resource"], resource);
    }
    // Another one's lease, by its very name and token.
    let body = format!("{{\"owner\":\"ann:host:7\",\"token\":\"{token}\"}}");
    let renewal = guarded.leases("bob", "POST", "/v1/leases/job:1/renew", &body);
    assert_problem(&renewal, 403, "forbidden", "not_forwarded");
    let target = format!("/v1/leases/job:1?owner=ann:host:7&token={token}");
    let release = guarded.leases("bob", "DELETE", &target, "");
    assert_problem(&release, 403, "forbidden", "not_forwarded");
    // Under its own name it is not the holder.
    let body = format!("{{\"owner\":\"bob\",\"token\":\"{token}\"}}");
    let renewal = guarded.leases("bob", "POST", "/v1/leases/job:1/renew", &body);
    assert_problem(&renewal, 409, "lease_lost", "not_forwarded");
    assert_eq!(guarded.acquire("bob", "job:1", "bob").status, 409);
    assert_eq!(guarded.state(), before);
    assert_eq!(guarded.refusals("leases", "forbidden"), 8);

    let body = format!("{{\"owner\":\"ann:host:7\",\"token\":\"{token}\"}}");
    assert_eq!(guarded.leases("ann", "POST", "/v1/leases/job:1/renew", &body).status, 200);
    assert_eq!(guarded.leases("ann", "DELETE", &target, "").status, 204);
}

#[test]
fn who_sees_some_resources_sees_no_list_of_all() {
    let api = Downstream::start();
    let rest = "may = [\"lease.read\", \"admin.read\", \"admin.raise\"]\nresources = [\"a*\"]";
    let guarded = Guarded::start(api.address, &(entry("some", rest) + &root()), "");
    for resource in ["a1", "b1"] {
        assert_eq!(guarded.acquire("root", resource, "o").status, 201);
        let target = format!("/v1/fences/{resource}");
        assert_eq!(guarded.admin("root", "POST", &target, "{\"token\":\"1\"}").status, 200);
    }
    for (target, of_leases, status) in [
        ("/v1/leases/a1", true, 200),
        ("/v1/leases/b1", true, 403),
        ("/v1/leases", true, 403),
        ("/v1/fences/a1", false, 200),
        ("/v1/fences/b1", false, 403),
        ("/v1/fences", false, 403),
        ("/v1/in-doubt", false, 403),
    ] {
        let answer = match of_leases {
            true => guarded.leases("some", "GET", target, ""),
            false => guarded.admin("some", "GET", target, ""),
        };
        assert_eq!(answer.status, status, "{target}");
    }
    let before = guarded.state();
    let raise = guarded.admin("some", "POST", "/v1/fences/b1", "{\"token\":\"9\"}");
    assert_problem(&raise, 403, "forbidden", "not_forwarded");
    assert_eq!(guarded.state(), before);
}

#[test]
fn every_change_has_an_audit_line_and_no_line_has_a_secret() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let api = Downstream::start();
    let rest = "may = [\"lease.acquire\"]\nresources = [\"r\"]";
    let guarded = Guarded::start(api.address, &(entry("ann", rest) + &root()), "");
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let bearer = format!("Bearer {}", token_of("ann"));
    let fields = [("Authorization", bearer.as_str()), ("traceparent", &parent)];
    let body = b"{\"owner\":\"ann\",\"ttl_ms\":60000}";
    let acquired = send(guarded.gateway.leases, "POST", "/v1/leases/r", &fields, body);
    assert_eq!(acquired.status, 201);
    let refused = send(guarded.gateway.leases, "POST", "/v1/leases/s", &fields, body);
    assert_eq!((refused.status, &refused.json()["trace_id"]), (403, &TRACE.into()));
    let token = acquired.json()["token"].as_str().unwrap().to_owned();
    let release = format!("/v1/leases/r?owner=ann&token={token}");
    assert_eq!(guarded.leases("root", "DELETE", &release, "").status, 204);
    assert_eq!(guarded.leases("root", "DELETE", &release, "").status, 404);
    assert_eq!(guarded.admin("root", "POST", "/v1/fences/r", "{\"token\":\"9\"}").status, 200);
    assert_eq!(guarded.admin("root", "POST", "/v1/coordinator/adopt", "").status, 409);
    assert_eq!(guarded.admin("stranger", "GET", "/v1/fences", "").status, 401);

    wait_until("six lines", || guarded.audit().len() >= 6);
    let lines = guarded.audit();
    let expected = [
        ("ann", "lease.acquire", Some("r"), Some("ann"), Some(&*token), "done"),
        ("ann", "lease.acquire", Some("s"), Some("ann"), None, "forbidden"),
        ("root", "lease.release", Some("r"), Some("ann"), Some(&*token), "done"),
        ("root", "lease.release", Some("r"), Some("ann"), Some(&*token), "lease_not_found"),
        ("root", "admin.raise", Some("r"), None, Some("9"), "done"),
        ("root", "admin.adopt", None, None, None, "coordinator_unchanged"),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (who, what, resource, owner, token, result)) in lines.iter().zip(expected) {
        let text = |name: &str| line[name].as_str();
        let found = (text("who").unwrap(), text("what").unwrap(), text("resource"), text("owner"));
        assert_eq!(found, (who, what, resource, owner), "{line}");
        assert_eq!((text("token"), text("result")), (token, Some(result)), "{line}");
        assert!(text("trace_id").is_some_and(|id| id.len() == 32), "{line}");
    }
    assert_eq!(lines[0]["trace_id"], TRACE);
    let log = guarded.gateway.log_text();
    for name in ["ann", "root", "stranger"] {
        assert!(!log.contains(&token_of(name)) && !log.contains(&hash_of(name)), "{log}");
    }
}

#[test]
fn guessing_is_counted_and_drowns_neither_the_log_nor_those_who_are_known() {
    const GUESSES: u64 = 300;
    let api = Downstream::start();
    let guarded = Guarded::start(api.address, &root(), "");
    for guess in 0..GUESSES {
        let answer = guarded.leases(&format!("guess-{guess}"), "GET", "/v1/leases", "");
        assert_eq!(answer.status, 401);
    }
    assert_eq!(guarded.refusals("leases", "unauthenticated"), GUESSES);
    assert_eq!(guarded.leases("root", "GET", "/v1/leases", "").status, 200);
    let log = guarded.gateway.log();
    let lines: Vec<_> = log.iter().filter(|line| line["message"] == "access refused").collect();
    let held_back: u64 = lines.iter().map(|line| line["unlogged_before"].as_u64().unwrap()).sum();
    assert!(!lines.is_empty() && lines.len() < 100, "{lines:#?}");
    assert!(held_back + u64::try_from(lines.len()).unwrap() <= GUESSES);
    assert!(!guarded.gateway.log_text().contains("fgt_"));
}
