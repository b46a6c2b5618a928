//! What the gateway logs: what is needed to follow a decision, and nothing that is secret.

use serde_json::Value;

use crate::metrics::scrape;
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::{exchange, send};
use crate::support::wait_until;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn guard(api: &Downstream, tables: &str) -> Gateway {
    Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"60s\"\n\
         [[route]]\nupstream = \"api\"\nname = \"held\"\npath = \"/held/{{*rest}}\"\n\
         [[route]]\nupstream = \"api\"\nname = \"watched\"\npath = \"/watched/{{*rest}}\"\nmode = \"observe\"\n\
         [[route]]\nupstream = \"api\"\nname = \"ordered\"\npath = \"/ordered/{{*rest}}\"\ntokens = \"ordered\"\n{tables}",
        api.address
    ))
}

/// A write that brings a secret in every place where one may be.
fn write(gateway: &Gateway, method: &str, path: &str, token: u64) -> u16 {
    let target = format!("{path}?key=secret");
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let token = token.to_string();
    let fields = [
        ("Fencing-Token", token.as_str()),
        ("Authorization", "Bearer secret"),
        ("Cookie", "session=secret"),
        ("X-Api-Key", "secret"),
        ("traceparent", &traceparent),
    ];
    send(gateway.proxy, method, &target, &fields, b"secret").status
}

/// The one line with this message about this resource; waits for it.
#[track_caller]
fn line(gateway: &Gateway, message: &str, about: &[(&str, &str)]) -> Value {
    let matching = || {
        let log = gateway.log().into_iter();
        let is_it = |line: &Value| about.iter().all(|(key, value)| line[*key] == **value);
        log.filter(|line| line["message"] == message && is_it(line)).collect::<Vec<_>>()
    };
    wait_until(&format!("{message:?} in the log"), || !matching().is_empty());
    let lines = matching();
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines[0].clone()
}

#[test]
fn each_decision_is_one_line_with_its_fields_and_without_secrets() {
    let api = Downstream::start();
    let mut gateway = guard(&api, "");
    let path = "/held/x";
    let a = gateway.acquire(path, "a", 60_000);
    assert_eq!(write(&gateway, "PUT", path, a), 200);
    gateway.release(path, "a", a);
    let b = gateway.acquire(path, "b", 60_000);
    assert_eq!(write(&gateway, "PUT", path, b), 200);
    assert_eq!(write(&gateway, "PUT", path, a), 412);
    assert_eq!(write(&gateway, "PUT", "/watched/x", 77), 200);
    api.behave(path, Behaviour::ResetInstead);
    assert_eq!(write(&gateway, "PUT", path, b), 502);
    let (a, b) = (a.to_string(), b.to_string());

    for (owner, token) in [("a", &a), ("b", &b)] {
        line(&gateway, "lease acquired", &[("resource", path), ("owner", owner), ("token", token)]);
    }
    line(&gateway, "lease released", &[("resource", path), ("owner", "a"), ("token", &a)]);
    let raised = [("resource", path), ("owner", "b"), ("token", &b), ("mark", &b)];
    let raised = line(&gateway, "mark raised", &raised);
    assert_eq!((&raised["mark_before"], &raised["trace_id"]), (&a.as_str().into(), &TRACE.into()));
    let stale = [("code", "stale_fencing_token"), ("resource", path), ("trace_id", TRACE)];
    let stale = line(&gateway, "request refused", &stale);
    assert_eq!((&stale["token"], &stale["mark"]), (&a.as_str().into(), &b.as_str().into()));
    let observed = [("code", "fencing_token_not_held"), ("resource", "/watched/x")];
    assert_eq!(line(&gateway, "request observed", &observed)["token"], "77");
    let doubt = [("resource", path), ("token", &b), ("trace_id", TRACE), ("route", "held")];
    assert_eq!(line(&gateway, "write in doubt", &doubt)["reason"], "upstream_outcome_unknown");

    let failed = [("code", "upstream_outcome_unknown"), ("resource", path), ("token", &b)];
    line(&gateway, "request failed", &failed);
    let answer = exchange(gateway.proxy, "GET /x?secret HTTP/1.1\r\nsecret\r\n\r\n");
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"));
    let trace_id = answer.json()["trace_id"].as_str().expect("a text").to_owned();
    line(&gateway, "head refused", &[("trace_id", &trace_id), ("code", "invalid_request")]);
    let heads = "fencegate_rejections_total{code=\"invalid_request\",route=\"none\"}";
    assert!(scrape(&gateway).value(heads) >= 1.0);

    let first_run = gateway.log_text();
    gateway.kill();
    gateway.start();
    line(&gateway, "grant left by an earlier run", &[("resource", path), ("token", &b)]);
    for text in [first_run, gateway.log_text()] {
        assert!(!text.contains("secret"), "{text}");
    }
}
