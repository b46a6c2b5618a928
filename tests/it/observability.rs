//! What the gateway tells of itself: every metric, from the start and within bounds, and logs with
//! what is needed to follow a decision and nothing that is secret.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use fencegate::problem::Code;
use serde_json::Value;

use crate::support::certificates::{Authority, Pair};
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::{Connection, exchange, request, send};
use crate::support::wait_until;

const PAGE: &str = include_str!("../../docs/metrics.md");
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A scrape: types by name, and values by series.
struct Scrape {
    types: BTreeMap<String, String>,
    series: BTreeMap<String, f64>,
}

fn scrape(gateway: &Gateway) -> Scrape {
    let answer = gateway.admin("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
    let text = String::from_utf8(answer.body).expect("text");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let series = series.map(|line| line.rsplit_once(' ').expect("a series and its value"));
    Scrape {
        types: types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect(),
        series: series
            .map(|(series, value)| (series.to_owned(), value.parse().expect("a number")))
            .collect(),
    }
}

impl Scrape {
    /// Label names of a metric, those of histograms' buckets left out.
    fn labels(&self, metric: &str) -> BTreeSet<String> {
        let of_metric = |series: &&String| {
            let name = series.split('{').next().unwrap_or_default();
            let name = name.strip_prefix(metric);
            name.is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
        };
        let labels =
            self.series.keys().filter(of_metric).filter_map(|series| {
                Some(series.split_once('{')?.1.trim_end_matches('}').to_owned())
            });
        let names: BTreeSet<String> = labels
            .flat_map(|labels| {
                let names = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0));
                names.map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        names.into_iter().filter(|name| name != "le").collect()
    }

    fn value(&self, series: &str) -> f64 {
        *self.series.get(series).unwrap_or_else(|| panic!("there is no {series}"))
    }
}

fn guard(api: &Downstream, tables: &str) -> Gateway {
    Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"60s\"\n\
         [[route]]\nupstream = \"api\"\nname = \"held\"\npath = \"/held/{{*rest}}\"\n\
         [[route]]\nupstream = \"api\"\nname = \"watched\"\npath = \"/watched/{{*rest}}\"\nmode = \"observe\"\n\
         [[route]]\nupstream = \"api\"\nname = \"ordered\"\npath = \"/ordered/{{*rest}}\"\ntokens = \"ordered\"\n{tables}",
        api.address
    ))
}

#[test]
fn every_metric_of_the_page_is_there_at_zero_from_the_start_and_no_other() {
    let api = Downstream::start();
    let ca = Authority::new();
    let Pair { cert, key } = ca.sign("gateway");
    let secured = format!(
        "[metrics]\nresources = [\"/held/x\"]\n[[upstream]]\nname = \"secured\"\n\
         url = \"https://127.0.0.1:9\"\nca_file = {:?}\ncert_file = {cert:?}\nkey_file = {key:?}\n",
        ca.ca()
    );
    let gateway = guard(&api, &secured);

    let scrape = scrape(&gateway);

    let rows: Vec<Vec<&str>> = PAGE
        .lines()
        .filter(|line| line.starts_with("| `fencegate_"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let documented: BTreeMap<String, String> =
        rows.iter().map(|row| (row[0].replace('`', ""), row[1].to_owned())).collect();
    assert_eq!(documented, scrape.types);
    for row in &rows {
        let labels = row[2].replace('`', "");
        let labels: BTreeSet<String> =
            labels.split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        assert_eq!(labels, scrape.labels(&row[0].replace('`', "")), "{row:?}");
        assert!(!row[3].is_empty(), "{row:?} says what it means");
    }
    for (series, value) in &scrape.series {
        // The store was opened, and looked at for what earlier runs left; epochs count from 1.
        let is_begun =
            ["fencegate_store_", "fencegate_coordinator_epoch", "fencegate_certificate_expiry_"]
                .iter()
                .any(|begun| series.starts_with(begun));
        assert!(*value == 0.0 || is_begun, "{series} {value}");
    }
    for route in ["held", "watched", "ordered", "none"] {
        for code in Code::ALL.iter().filter(|code| code.is_of_the_proxy()) {
            let labels = format!("{{code=\"{}\",route=\"{route}\"}}", code.as_str());
            scrape.value(&format!("fencegate_rejections_total{labels}"));
        }
    }
}

#[test]
fn series_do_not_grow_with_resources_owners_paths_and_methods() {
    let api = Downstream::start();
    let gateway = guard(&api, "");
    let before = scrape(&gateway);

    thread::scope(|scope| {
        for client in 0..10 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut proxy = Connection::open(gateway.proxy);
                for number in client * 100..(client + 1) * 100 {
                    let fields = [("Fencing-Token", "1")];
                    for path in [format!("/ordered/{number}"), format!("/nowhere/{number}")] {
                        let bytes = request(&format!("M{number}"), &path, &fields, b"x");
                        proxy.try_exchange(bytes).expect("an answer");
                    }
                    gateway.acquire(&format!("r{number}"), &format!("owner-{number}"), 60_000);
                }
            });
        }
    });

    let after = scrape(&gateway);
    let names = |scrape: &Scrape| scrape.series.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after));
    assert!(after.value("fencegate_raises_total") >= 1000.0);
    assert!(after.value("fencegate_leases_acquired_total") >= 1000.0);
    let unmatched = "fencegate_requests_total{class=\"write\",route=\"none\"}";
    assert!(after.value(unmatched) >= 1000.0);
    let refused = "fencegate_request_duration_seconds_count{route=\"none\"}";
    assert!(after.value(refused) >= 1000.0);
}

#[test]
fn tokens_of_the_named_resources_are_metrics() {
    let api = Downstream::start();
    let gateway = guard(&api, "[metrics]\nresources = [\"/held/x\"]\n");
    let a = gateway.acquire("/held/x", "a", 60_000);
    assert_eq!(gateway.put("/held/x", a, "a").status, 200);
    gateway.release("/held/x", "a", a);
    let b = gateway.acquire("/held/x", "b", 60_000);

    let scrape = scrape(&gateway);

    let token = |kind| {
        scrape
            .value(&format!("fencegate_token{{kind=\"{kind}\",resource=\"/held/x\"}}"))
            .to_string()
    };
    assert_eq!([token("highest"), token("current")], [a.to_string(), b.to_string()]);
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
