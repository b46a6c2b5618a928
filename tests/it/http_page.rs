//! The tables of `docs/http.md` on the lease and admin listeners against what these listeners answer.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::http::send;

const PAGE: &str = include_str!("../../docs/http.md");

/// Method, target and body of each row of a section.
fn requests(section: &str) -> Vec<(String, String, String)> {
    let (_, text) = PAGE.split_once(&format!("\n## {section}\n")).expect("the section is there");
    let text = text.split("\n## ").next().unwrap_or_default();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| {
        let cell = row.split(" |").next().unwrap_or_default();
        let mut parts = cell.split('`');
        let (method, target) =
            parts.next().and_then(|line| line.split_once(' ')).expect("a request");
        (method.to_owned(), target.to_owned(), parts.nth(1).unwrap_or_default().to_owned())
    });
    rows.collect()
}

#[test]
fn the_lease_listener_of_the_page_is_that_of_the_openapi_document() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);

    let document: Value = send(gateway.leases, "GET", "/openapi.json", &[], b"").json();

    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            if ["get", "post", "delete"].contains(&method.as_str()) {
                described.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    described.remove("GET /openapi.json");
    let shown: BTreeSet<String> = requests("The lease listener")
        .into_iter()
        .map(|(method, target, _)| {
            format!("{method} {}", target.split('?').next().unwrap_or_default())
        })
        .collect();
    assert_eq!(shown, described);
}

#[test]
fn each_request_of_the_page_is_one_that_its_listener_takes() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    for (section, listener) in
        [("The lease listener", gateway.leases), ("The admin listener", gateway.admin)]
    {
        let mut taken = 0;
        for (method, target, body) in requests(section) {
            let target = target.replace("{resource}", "x").replace("=R", "=x").replace("=N", "=7");
            let json = [("Content-Type", "application/json")];
            let answer = send(listener, &method, &target, &json, body.as_bytes());
            let code = answer.json_code();
            // What they say of things that are not there, or not to be had now.
            let known =
                ["lease_not_found", "fence_not_found", "lease_lost", "coordinator_unchanged"];
            let is_taken =
                answer.status < 300 || code.is_some_and(|code| known.contains(&code.as_str()));
            assert!(is_taken, "{method} {target}: {answer:?}");
            taken += 1;
        }
        assert!(taken >= 5, "{section}: {taken}");
    }
}
