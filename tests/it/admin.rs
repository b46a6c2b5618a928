//! The admin listener, and the commands that talk to a gateway.

use serde_json::{Value, json};

use crate::support::command::{Ended, fencegate, run};
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, assert_problem, send};
use crate::support::wait_until;

/// Raises the mark of `/x`, with the `Content-Type` that `curl -d` sends.
fn raise(gateway: &Gateway, token: u64) -> Answer {
    let body = json!({"token": token.to_string()}).to_string();
    let of_curl = [("Content-Type", "application/x-www-form-urlencoded")];
    send(gateway.admin, "POST", "/v1/fences/%2Fx", &of_curl, body.as_bytes())
}

/// `fencegate VERB ARGS` with this gateway's address.
fn told(gateway: &Gateway, args: &[&str]) -> Ended {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (flag, address) = match args[0] {
        "fence" => ("--admin", gateway.admin),
        _ => ("--leases", gateway.leases),
    };
    let mut command = fencegate(directory.path(), args);
    command.args([flag, &format!("http://{address}")]);
    run(command)
}

/// What a command that succeeded printed.
#[track_caller]
fn printed(gateway: &Gateway, args: &[&str]) -> Value {
    let ended = told(gateway, args);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}");
    serde_json::from_str(&ended.stdout).expect("JSON")
}

/// Asserts that a command failed with this code and said these words in one line.
#[track_caller]
fn fails(ended: &Ended, code: i32, words: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.contains(words), "no {words:?} in {ended:?}");
}

#[test]
fn a_raise_shuts_the_present_token_out_and_admits_nobody_until_the_next_lease() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let a = gateway.acquire("/x", "a", 60_000);
    assert_eq!(gateway.put("/x", a, "a").status, 200);

    let raised = raise(&gateway, a + 1);

    assert_eq!(raised.status, 200, "{raised:?}");
    let fence = raised.json();
    assert_eq!(fence["highest_token"], (a + 1).to_string());
    assert_eq!(fence["confirmed"], false);
    assert_problem(&gateway.put("/x", a, "a"), 412, "stale_fencing_token", "not_forwarded");
    assert_eq!(gateway.put("/x", a + 1, "nobody's").code(), "fencing_token_not_held");
    assert_eq!(gateway.release("/x", "a", a).status, 204);
    let b = gateway.acquire("/x", "b", 60_000);
    assert!(b > a);
    assert_eq!(gateway.put("/x", b, "b").status, 200);
    assert_eq!(api.tokens("/x"), [a, b]);
}

#[test]
fn a_raise_that_changes_nothing_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    assert_eq!(raise(&gateway, 7).status, 200);

    for token in [7, 3] {
        let refused = raise(&gateway, token);
        assert_problem(&refused, 409, "mark_not_raised", "not_forwarded");
        assert_eq!(refused.json()["highest_token"], "7");
        assert_eq!(refused.json()["resource"], "/x");
    }
    assert_eq!(gateway.mark("/x"), Some(7));
}

#[test]
fn requests_that_mean_nothing_are_refused_and_change_nothing() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let post =
        |target: &str, body: &str| send(gateway.admin, "POST", target, &[], body.as_bytes()).code();
    for body in ["", "{}", "{\"token\":7}x", "{\"token\":\"07\"}", "{\"token\":\"7\",\"x\":1}"] {
        assert_eq!(post("/v1/fences/%2Fx", body), "invalid_request", "{body}");
    }
    for name in ["%", "%2", "%zz", "%ff", "%00"] {
        let target = format!("/v1/fences/{name}");
        assert_eq!(post(&target, "{\"token\":\"7\"}"), "unresolvable_resource", "{name}");
        assert_eq!(gateway.admin(&target).code(), "unresolvable_resource", "{name}");
    }
    for query in ["limit=0", "limit=1001", "limit=x", "limitt=1"] {
        for list in ["fences", "in-doubt"] {
            let refused = gateway.admin(&format!("/v1/{list}?{query}"));
            assert_eq!(refused.code(), "invalid_request", "{list} {query}");
        }
    }
    assert_eq!(gateway.admin("/v1/fences").json()["fences"], json!([]));
    let missing = gateway.admin("/v1/fences/%2Fx");
    assert_problem(&missing, 404, "fence_not_found", "not_forwarded");
    assert_eq!(missing.json()["resource"], "/x");
}

#[test]
fn fences_are_listed_page_by_page_in_the_order_of_their_names() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for path in ["/c", "/a", "/e", "/b", "/d"] {
        assert_eq!(gateway.put(path, 1, "x").status, 200);
    }
    let mut seen = Vec::new();
    let mut after = String::new();
    for rows in [2, 2, 1] {
        let page = gateway.admin(&format!("/v1/fences?limit=2{after}")).json();
        let fences = page["fences"].as_array().expect("a list");
        assert_eq!(fences.len(), rows);
        let names = fences.iter().map(|fence| fence["resource"].as_str().expect("a name"));
        seen.extend(names.map(str::to_owned));
        after = page["next"].as_str().map(|next| format!("&after={next}")).unwrap_or_default();
    }
    assert_eq!(seen, ["/a", "/b", "/c", "/d", "/e"]);
    assert_eq!(after, "", "there is no fourth page");
}

#[test]
fn a_gateway_that_runs_is_alive_and_ready() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    for (target, text) in [("/livez", "alive\n"), ("/readyz", "ready\n")] {
        let answer = gateway.admin(target);
        assert_eq!((answer.status, &*answer.body), (200, text.as_bytes()), "{target}");
    }
    assert_problem(&gateway.admin("/healthz"), 404, "no_route", "not_forwarded");
}

#[test]
fn fence_shows_and_raises_and_its_exit_code_says_what_was_wrong() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let show = ["fence", "show", "--resource", "/x"];
    fails(&told(&gateway, &show), 1, "fence_not_found");
    assert_eq!(gateway.put("/x", 5, "x").status, 200);

    assert_eq!(printed(&gateway, &show)["highest_token"], "5");
    let raised = printed(&gateway, &["fence", "raise", "--resource", "/x", "--token", "6"]);
    assert_eq!(raised["highest_token"], "6");
    let again = told(&gateway, &["fence", "raise", "--resource", "/x", "--token", "6"]);
    fails(&again, 1, "mark_not_raised: the mark is 6 already");
    assert_eq!(printed(&gateway, &["fence", "list"])["fences"][0]["resource"], "/x");
    assert_eq!(printed(&gateway, &["fence", "list", "--after", "/x"])["fences"], json!([]));
    assert_eq!(printed(&gateway, &["fence", "in-doubt"])["in_doubt"], json!([]));

    fails(&told(&gateway, &["fence", "list", "--limit", "0"]), 69, "it must be 1 to 1000");
    fails(&told(&gateway, &["fence", "show", "--resource", ".."]), 69, "another name");
    let directory = tempfile::tempdir().expect("a temporary directory");
    for address in ["127.0.0.1:9090", "ftp://127.0.0.1:9090", "", "http://127.0.0.1:9/?x"] {
        let ended = run(fencegate(directory.path(), &["fence", "list", "--admin", address]));
        fails(&ended, 64, "give an address such as http://127.0.0.1:9090");
    }
    let ended =
        run(fencegate(directory.path(), &["fence", "list", "--admin", "http://127.0.0.1:9"]));
    fails(&ended, 69, "no answer from http://127.0.0.1:9");
}

#[test]
fn lease_goes_through_a_leases_life_at_the_real_gateway() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let show = ["lease", "show", "--resource", "/x"];
    fails(&told(&gateway, &show), 1, "lease_not_found");
    let acquire =
        |owner| ["lease", "acquire", "--resource", "/x", "--ttl", "60s", "--owner", owner];

    let lease = printed(&gateway, &acquire("a"));

    let token = lease["token"].as_str().expect("a token").to_owned();
    assert_eq!(printed(&gateway, &show), lease);
    assert_eq!(gateway.put("/x", token.parse().expect("a number"), "a").status, 200);
    fails(&told(&gateway, &acquire("b")), 75, "lease_held");
    let held = |verb, owner, token| {
        ["lease", verb, "--resource", "/x", "--owner", owner, "--token", token]
    };
    assert_eq!(printed(&gateway, &held("renew", "a", &token))["token"], *token);
    fails(&told(&gateway, &held("renew", "b", &token)), 76, "lease_lost");
    assert_eq!(printed(&gateway, &["lease", "list"])["leases"][0]["owner"], "a");
    fails(&told(&gateway, &held("release", "b", &token)), 76, "owner_mismatch");
    assert_eq!(printed(&gateway, &held("release", "a", &token))["released"], true);
    fails(&told(&gateway, &held("release", "a", &token)), 1, "lease_not_found");
    assert_eq!(printed(&gateway, &["lease", "list"])["leases"], json!([]));
}

#[test]
fn a_trace_id_goes_to_the_api_into_the_problem_and_into_the_log() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{id}-00f067aa0ba902b7-01");
    let put = |token: &str| {
        let fields = [("Fencing-Token", token), ("traceparent", &parent), ("tracestate", "a=1")];
        send(gateway.proxy, "PUT", "/x", &fields, b"x")
    };

    assert_eq!(put("5").status, 200);
    let refused = put("4");

    assert_eq!(refused.json()["trace_id"], id, "{refused:?}");
    let seen = api.seen();
    let [request] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(request.header("traceparent"), Some(parent.as_str()));
    assert_eq!(request.header("tracestate"), Some("a=1"));
    wait_until("the refusal is logged", || {
        let log = gateway.log();
        log.iter().any(|line| line["message"] == "request refused" && line["trace_id"] == id)
    });
}
