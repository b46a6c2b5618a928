//! From each panel one click leads to the runbooks of the alerts that are about what it shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::boards::{BOARDS, panels, read};

/// What alerts use to know a gateway or a route by, or to make a share of something: no signal by themselves.
const CONTEXT: [&str; 6] = [
    "fencegate_build_info",
    "fencegate_requests_total",
    "fencegate_rejections_total",
    "fencegate_route_info",
    "fencegate_route_drain_limit_seconds",
    "fencegate_route_settle_seconds",
];

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Expressions of a rule file by the name behind `key`, such as `alert: NAME`.
fn rules(text: &str, key: &str) -> BTreeMap<String, String> {
    let mut rules: BTreeMap<String, String> = BTreeMap::new();
    let mut name = None;
    for line in text.lines() {
        let entry = line.trim_start().trim_start_matches("- ");
        if let Some(found) = entry.strip_prefix(key) {
            name = Some(found.trim().to_owned());
        } else if ["for:", "labels:", "annotations:"].iter().any(|end| entry.starts_with(end)) {
            name = None;
        } else if let Some(name) = &name {
            *rules.entry(name.clone()).or_default() += &format!("{line}\n");
        }
    }
    rules
}

/// What an expression is about: metrics, and codes of rejections.
fn signals(expr: &str) -> BTreeSet<String> {
    let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics =
        words.filter(|word| word.starts_with("fencegate_") || *word == "up").map(|word| {
            ["_bucket", "_count", "_sum"]
                .iter()
                .find_map(|end| word.strip_suffix(end))
                .unwrap_or(word)
        });
    let codes = expr.split("code=").skip(1).filter_map(|rest| rest.split('"').nth(1));
    let codes = codes.flat_map(|codes| codes.split('|'));
    metrics.chain(codes).filter(|it| !CONTEXT.contains(it)).map(str::to_owned).collect()
}

/// What each alert is about, with recording rules put in.
fn alerts() -> BTreeMap<String, BTreeSet<String>> {
    let records = rules(&file("dashboards/rules/recording.yaml"), "record:");
    let alerts = rules(&file("dashboards/rules/alerts.yaml"), "alert:");
    assert!(alerts.len() > 10, "{alerts:?}");
    let spelled_out = |mut expr: String| {
        // A record may be made of another one.
        for _ in 0..3 {
            for (name, meaning) in &records {
                expr = expr.replace(name.as_str(), meaning);
            }
        }
        expr
    };
    let documented = file("docs/metrics.md");
    let is_there = |signal: &String| {
        !signal.starts_with("fencegate_") || documented.contains(&format!("`{signal}`"))
    };
    alerts
        .into_iter()
        .map(|(name, expr)| (name, signals(&spelled_out(expr))))
        // Of a metric that no gateway has, no panel can show anything.
        .filter(|(_, signals)| signals.iter().all(is_there))
        .collect()
}

fn runbook(alert: &str) -> String {
    let mut name = String::new();
    for letter in alert.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    format!("{name}.md")
}

#[test]
fn panels_link_to_the_runbooks_of_what_they_show() {
    let alerts = alerts();
    let mut linked = BTreeSet::new();
    for name in BOARDS {
        let board = read(name);
        for panel in panels(&board) {
            let links: BTreeSet<String> = panel["links"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|link| link["url"].as_str().expect("a link").replace("${runbooks}", ""))
                .collect();
            let exprs = panel["targets"].as_array().expect("a list").iter();
            let shown: BTreeSet<String> =
                exprs.flat_map(|it| signals(it["expr"].as_str().expect("a query"))).collect();
            let about = alerts.iter().filter(|(_, alert)| !alert.is_disjoint(&shown));
            let about: BTreeSet<String> = about.map(|(alert, _)| runbook(alert)).collect();
            assert!(
                about.is_empty() || !about.is_disjoint(&links),
                "{name}, {}: none of {about:?} in {links:?}",
                panel["title"]
            );
            linked.extend(links);
        }
    }
    let missing: Vec<_> = alerts.keys().filter(|alert| !linked.contains(&runbook(alert))).collect();
    assert!(missing.is_empty(), "no panel leads to the runbooks of {missing:?}");
    for name in linked {
        file(&format!("docs/runbooks/{name}"));
    }
}
