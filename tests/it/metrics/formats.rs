//! The formats of a scrape, judged by those who read them: promtool, Python's parser of OpenMetrics, and a real
//! Prometheus.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;
use crate::servers::prometheus::Prometheus;
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::http::Answer;
use crate::support::wait_until;

/// What a Prometheus of version 2 sends.
const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

fn scrape_as(gateway: &Gateway, accept: &str) -> Answer {
    send(gateway.admin, "GET", "/metrics", &[("Accept", accept)], b"")
}

/// A gateway that has admitted, refused, observed, raised and lost something of the trace.
fn gateway_with_history(api: &Downstream) -> Gateway {
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"1s\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n\
         [metrics]\nresources = [\"/held/x\", \"a \\\"quoted\\\" \\\\ name\"]\n",
        api.address
    ));
    assert_eq!(traced(&gateway, "/x", 5), 200);
    assert_eq!(traced(&gateway, "/x", 5), 200);
    assert_eq!(traced(&gateway, "/x", 4), 412);
    api.behave("/lost", Behaviour::ResetInstead);
    assert_eq!(traced(&gateway, "/lost", 1), 502);
    gateway
}

/// Runs a program that reads `input`, and expects success without a word.
#[track_caller]
fn assert_silent(command: &mut Command, input: &[u8]) {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program is installed");
    child.stdin.take().expect("a pipe").write_all(input).expect("it reads");
    let ended = child.wait_with_output().expect("our child");
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(ended.status.success() && said.is_empty(), "{command:?}: {}: {said}", ended.status);
}

#[test]
fn promtool_finds_nothing_to_say_about_a_live_scrape() {
    let api = Downstream::start();
    let gateway = gateway_with_history(&api);
    let answer = scrape_as(&gateway, "*/*");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
    assert_eq!(answer.header("vary"), Some("Accept"));
    assert_silent(Command::new("promtool").args(["check", "metrics"]), &answer.body);
}

#[test]
fn a_strict_parser_reads_openmetrics_with_exemplars() {
    let api = Downstream::start();
    let gateway = gateway_with_history(&api);

    let answer = scrape_as(&gateway, PROMETHEUS);

    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(kind));
    let text = String::from_utf8(answer.body.clone()).expect("text");
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let parse = "import sys\n\
                 from prometheus_client.openmetrics.parser import text_string_to_metric_families\n\
                 families = list(text_string_to_metric_families(sys.stdin.read()))\n\
                 assert len(families) > 50, families\n";
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/foreign/prometheus");
    let mut python = Command::new("python3");
    assert_silent(python.env("PYTHONPATH", packages).args(["-c", parse]), &answer.body);
    let exemplar = format!(" # {{trace_id=\"{TRACE}\"}} ");
    for series in [
        "fencegate_request_duration_seconds_bucket{route=\"all\",le=",
        "fencegate_upstream_duration_seconds_bucket{route=\"all\",le=",
        "fencegate_admission_duration_seconds_bucket{route=\"all\",le=",
        "fencegate_raise_duration_seconds_bucket{le=",
        "fencegate_stale_write_age_seconds_bucket{route=\"all\",le=",
        "fencegate_rejections_total{code=\"stale_fencing_token\",route=\"all\"} 1",
        "fencegate_in_doubt_writes_total{reason=\"upstream_outcome_unknown\",route=\"all\"} 1",
        "fencegate_raises_total 2",
    ] {
        let mut lines = text.lines().filter(|line| line.starts_with(series));
        assert!(lines.any(|line| line.contains(&exemplar)), "{series} in {text}");
    }
}

#[test]
fn a_real_prometheus_finds_the_trace_that_a_client_sent() {
    let api = Downstream::start();
    let gateway = gateway_with_history(&api);
    let prometheus = Prometheus::scraping(gateway.admin);
    for query in ["fencegate_request_duration_seconds_bucket", "fencegate_rejections_total"] {
        let target = format!("/api/v1/query_exemplars?query={query}&start=0&end=9999999999");
        let mut found = serde_json::Value::Null;
        wait_until("exemplars", || {
            found = prometheus.api(&target);
            let exemplars = || found.as_array()?.first()?["exemplars"].as_array();
            exemplars().is_some_and(|exemplars| !exemplars.is_empty())
        });
        let traces: BTreeSet<&str> = found
            .as_array()
            .expect("a list")
            .iter()
            .flat_map(|series| series["exemplars"].as_array().expect("a list"))
            .filter_map(|exemplar| exemplar["labels"]["trace_id"].as_str())
            .collect();
        assert_eq!(traces, BTreeSet::from([TRACE]), "{query}");
    }
    let up = prometheus.api("/api/v1/query?query=up");
    assert_eq!(up["result"][0]["value"][1], "1", "{up}");
}
