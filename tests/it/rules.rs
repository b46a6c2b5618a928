//! The rules of `dashboards/rules`: sound, tested one by one, about metrics that exist, each with a page that says
//! what to do; and a real Prometheus that fires them at a real gateway.

mod prometheus;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fencegate::problem::Code;
use rustix::process::Signal;

use self::prometheus::Prometheus;
use crate::servers::etcd::Etcd;
use crate::servers::postgres::Postgres;
use crate::support::command::{Ended, fencegate, run};
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::send;

const METRICS: &str = include_str!("../../docs/metrics.md");
const RUNBOOKS_AT: &str = "https://github.com/fencegate/fencegate/blob/main/docs/runbooks/";

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The files of a directory that end so, in order.
fn files(directory: &str, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(place(directory))
        .expect("it is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "nothing in {directory}");
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("it is there")
}

fn rule_files() -> Vec<PathBuf> {
    files("dashboards/rules", "yaml")
}

#[track_caller]
fn promtool(args: &[&str], files: &[PathBuf]) -> String {
    let output = Command::new("promtool")
        .args(args)
        .args(files)
        .output()
        .expect("promtool is installed (Debian: prometheus)");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{}", said.concat());
    said.concat()
}

/// `FencegateWritesInDoubt` is `fencegate-writes-in-doubt`.
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    kebab
}

/// Names of alerts, as they stand in the rules.
fn alerts() -> BTreeSet<String> {
    let text: String = rule_files().iter().map(|path| read(path)).collect();
    let alerts = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: BTreeSet<String> = alerts.map(str::to_owned).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    alerts
}

#[test]
fn promtool_finds_the_rules_sound() {
    promtool(&["check", "rules", "--lint=all", "--lint-fatal"], &rule_files());
}

#[test]
fn every_alert_fires_and_does_not_fire_in_a_test() {
    promtool(&["test", "rules"], &files("dashboards/rules/tests", "yaml"));

    let (mut fires, mut is_quiet) = (BTreeSet::new(), BTreeSet::new());
    for file in files("dashboards/rules/tests", "yaml") {
        let text = read(&file);
        for case in text.split("alertname: ").skip(1) {
            let (name, rest) = case.split_once('\n').expect("a line");
            let expected = rest.trim_start().strip_prefix("exp_alerts:").expect("what is expected");
            let of = if expected.starts_with(" []") { &mut is_quiet } else { &mut fires };
            of.insert(name.to_owned());
        }
    }
    assert_eq!(fires, alerts());
    assert_eq!(is_quiet, alerts());
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let pages: BTreeSet<String> = files("docs/runbooks", "md")
        .iter()
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .filter(|name| name != "README")
        .collect();
    assert_eq!(pages, alerts().iter().map(|alert| kebab(alert)).collect());
    let index = read(&place("docs/runbooks/README.md"));
    for alert in alerts() {
        let page = read(&place(&format!("docs/runbooks/{}.md", kebab(&alert))));
        assert!(page.starts_with(&format!("# {alert}\n")), "{alert}");
        for part in ["## What it means", "## Look at", "## Do", "## Until", "## False alarm"] {
            assert!(page.contains(&format!("\n{part}\n")), "{alert}: no {part:?}");
        }
        assert!(
            index.contains(&format!("[{alert}]({}.md)", kebab(&alert))),
            "{alert} in the index"
        );
    }
}

/// Metrics that were agreed on before the parts that have them.
const AGREED: [&str; 1] = ["fencegate_certificate_expiry_timestamp_seconds"];

/// Metrics and codes that these texts speak of.
fn words(text: &str, prefix: &str) -> BTreeSet<String> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    let words = text.split(|letter| !is_word(letter)).filter(|word| word.starts_with(prefix));
    words.map(str::to_owned).collect()
}

#[test]
fn every_metric_and_code_that_a_rule_or_a_runbook_names_exists() {
    let documented: BTreeSet<&str> =
        METRICS.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let mut texts: Vec<PathBuf> = rule_files();
    texts.extend(files("docs/runbooks", "md"));
    texts.extend(files("dashboards/rules/tests", "yaml"));
    let recorded: String = rule_files().iter().map(|path| read(path)).collect();
    for path in texts {
        let text = read(&path);
        for word in words(&text, "fencegate_") {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
            let is_there = documented.contains(word.as_str())
                || AGREED.contains(&word.as_str())
                || base.is_some_and(|base| documented.contains(base));
            assert!(is_there, "{}: there is no metric {word}", path.display());
        }
        for word in words(&text, "job_route") {
            assert!(recorded.contains(&format!("- record: {word}\n")), "{word} is not recorded");
        }
        for codes in text.split("code=").skip(1) {
            let codes = codes.trim_start_matches('~').split('"').nth(1).expect("a quoted value");
            for code in codes.split('|') {
                assert!(Code::ALL.iter().any(|known| known.as_str() == code), "no code {code}");
            }
        }
    }
}

/// One alert for what happens at thirty gateways at once, and at one of them.
#[test]
fn thirty_gateways_are_watched_by_the_same_rules_as_one() {
    let mut series = String::new();
    for gateway in 0..30 {
        for (name, labels, values) in [
            ("fencegate_coordinator_changed", "", "0x5 1x20"),
            (
                "fencegate_rejections_total",
                ", route=\"r\", code=\"stale_fencing_token\"",
                "0x5 1x20",
            ),
            (
                "fencegate_rejections_total",
                ", route=\"r\", code=\"fence_store_unavailable\"",
                "0+1x25",
            ),
            (
                "fencegate_instance_starts_over_total",
                "",
                if gateway == 7 { "0x5 1x20" } else { "0x25" },
            ),
        ] {
            writeln!(
                series,
                "      - series: '{name}{{job=\"j\", instance=\"g{gateway}\"{labels}}}'\n        values: {values}"
            )
            .expect("a String takes all");
        }
    }
    let counted = [
        ("FencegateCoordinatorChanged", 1),
        ("FencegateStaleWritesRising", 1),
        ("FencegateStoreUnavailable", 1),
        ("FencegateInstanceStartedOver", 1),
    ];
    let mut cases = String::new();
    for (alert, count) in counted {
        let expr = format!("count(ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}})");
        let labels = "{}";
        write!(
            cases,
            "      - expr: '{expr}'\n        eval_time: 14m\n        exp_samples: \
             [{{labels: '{labels}', value: {count}}}]\n"
        )
        .expect("a String takes all");
    }
    let rules: Vec<String> =
        rule_files().iter().map(|path| format!("'{}'", path.display())).collect();
    let text = format!(
        "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n{series}    \
         promql_expr_test:\n{cases}",
        rules.join(", ")
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("thirty.yaml");
    fs::write(&file, text).expect("writable");
    promtool(&["test", "rules"], &[file]);
}

fn watch(gateways: &[&Gateway]) -> Prometheus {
    let rules = rule_files();
    let rules: Vec<&Path> = rules.iter().map(PathBuf::as_path).collect();
    let admin: Vec<_> = gateways.iter().map(|gateway| gateway.admin).collect();
    let prometheus = Prometheus::watching(&rules, &admin);
    prometheus.has_looked();
    prometheus
}

/// Panels that a page names: `Panels *one*, *two*`.
fn panels(text: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut panels = Vec::new();
    let lists = text.split("Panels *").skip(1).chain(text.split("Panel *").skip(1));
    for list in lists {
        let mut rest = Some(list);
        while let Some((panel, after)) = rest.and_then(|rest| rest.split_once('*')) {
            panels.push(panel.to_owned());
            rest = after.strip_prefix(", *").or_else(|| after.strip_prefix(" and *"));
        }
    }
    panels
}

#[test]
fn every_panel_that_a_runbook_names_is_on_the_dashboard() {
    let dashboard = read(&place("dashboards/operators.json"));
    let mut named = 0;
    for path in files("docs/runbooks", "md") {
        for panel in panels(&read(&path)) {
            let is_there = dashboard.contains(&format!("\"title\": \"{panel}\""));
            assert!(is_there, "{}: no panel {panel:?}", path.display());
            named += 1;
        }
    }
    assert!(named > 30, "{named}");
}

#[test]
fn prometheus_has_every_alert_with_all_that_a_person_needs() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let prometheus = watch(&[&gateway]);

    let mut seen = BTreeMap::new();
    for rule in prometheus.rules() {
        assert_eq!(rule["health"], "ok", "{rule}");
        if rule["type"] != "alerting" {
            continue;
        }
        let name = rule["name"].as_str().expect("a name").to_owned();
        let severity = rule["labels"]["severity"].as_str().unwrap_or_default().to_owned();
        assert!(["critical", "warning"].contains(&severity.as_str()), "{rule}");
        let texts = &rule["annotations"];
        assert!(texts["summary"].as_str().is_some_and(|text| !text.contains("{{")), "{rule}");
        assert!(texts["description"].as_str().is_some_and(|text| text.contains("{{")), "{rule}");
        assert_eq!(texts["runbook_url"], format!("{RUNBOOKS_AT}{}.md", kebab(&name)));
        seen.entry(name).or_insert_with(Vec::new).push(severity);
    }
    assert_eq!(seen.keys().cloned().collect::<BTreeSet<_>>(), alerts());
    assert!(seen.values().all(|severities| {
        severities.iter().collect::<BTreeSet<_>>().len() == severities.len()
    }));
    assert_eq!(prometheus.firing(), Vec::<serde_json::Value>::new(), "all is well");
    for path in files("docs/runbooks", "md") {
        for query in read(&path).split("```promql\n").skip(1) {
            prometheus.takes(query.split("```").next().unwrap_or_default());
        }
    }
}

#[test]
fn stale_writes_and_writes_in_doubt_at_a_real_gateway_are_told() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let prometheus = watch(&[&gateway]);
    let a = gateway.acquire("/x", "a", 60_000);
    assert_eq!(gateway.put("/x", a, "a").status, 200);
    gateway.release("/x", "a", a);
    let b = gateway.acquire("/x", "b", 60_000);
    assert_eq!(gateway.put("/x", b, "b").status, 200);
    prometheus.has_looked();
    assert_eq!(prometheus.firing(), Vec::<serde_json::Value>::new(), "nothing happened yet");

    for _ in 0..20 {
        assert_eq!(gateway.put("/x", a, "late").status, 412);
    }
    let alert = prometheus.fires("FencegateStaleWritesRising");
    assert_eq!(alert["labels"]["route"], "all", "{alert}");

    api.behave("/x", Behaviour::ResetInstead);
    assert_eq!(gateway.put("/x", b, "b").status, 502);
    let alert = prometheus.fires("FencegateWritesInDoubt");
    assert_eq!(alert["labels"]["job"], "fencegate", "{alert}");
    assert_eq!(api.tokens("/x"), [a, b, b]);
}

#[test]
fn clients_without_tokens_and_dead_leases_are_told() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let prometheus = watch(&[&gateway]);

    for _ in 0..5 {
        let answer = send(gateway.proxy, "PUT", "/x", &[], b"x");
        assert_eq!(answer.status, 428);
        assert_eq!(gateway.renew("/x", "a", 7, 60_000).status, 409);
    }

    assert_eq!(prometheus.fires("FencegateWritesRefused")["labels"]["route"], "all");
    prometheus.fires("FencegateLeaseRenewalsFailing");
}

#[test]
fn an_etcd_that_is_away_or_was_wiped_is_told_until_it_is_adopted() {
    let mut etcd = Etcd::single();
    let api = Downstream::start();
    let gateway = Gateway::with_config(&format!(
        "[coordinator]\nurl = \"etcd://{}\"\n[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\n",
        etcd.endpoints().join(","),
        api.address
    ));
    let prometheus = watch(&[&gateway]);
    let a = gateway.acquire("/x", "a", 60_000);
    assert_eq!(gateway.put("/x", a, "a").status, 200);

    etcd.signal(0, Signal::STOP);
    assert_eq!(gateway.put("/y", a + 1, "y").code(), "coordinator_unavailable");
    prometheus.fires("FencegateCoordinatorUnavailable");
    etcd.signal(0, Signal::CONT);

    etcd.wipe();
    prometheus.fires("FencegateCoordinatorChanged");
    assert_eq!(adopt(&gateway).code, Some(0));
    prometheus.is_resolved("FencegateCoordinatorChanged");
}

#[test]
fn a_holder_that_waits_in_vain_for_an_older_write_is_told() {
    let api = Downstream::start();
    let gateway = Gateway::with_route(api.address, "drain = \"60s\"\nwait = \"100ms\"\n");
    let prometheus = watch(&[&gateway]);
    let a = gateway.acquire("/x", "a", 60_000);
    api.behave("/x", Behaviour::Hold);
    let proxy = gateway.proxy;
    let older = std::thread::spawn(move || {
        send(proxy, "PUT", "/x", &[("Fencing-Token", &a.to_string())], b"a")
    });
    api.wait_for(1);
    gateway.release("/x", "a", a);
    let b = gateway.acquire("/x", "b", 60_000);

    assert_eq!(gateway.put("/x", b, "b").code(), "fence_draining");
    assert_eq!(gateway.put("/x", b, "b").code(), "fence_draining");

    assert_eq!(prometheus.fires("FencegateDrainStuck")["labels"]["route"], "all");
    api.let_go("/x");
    assert_eq!(older.join().expect("no panic").status, 200);
}

#[test]
fn a_store_that_is_away_and_a_gateway_that_loses_its_lease_are_told() {
    let (api, mut server) = (Downstream::start(), Postgres::start());
    let store = format!("url = \"{}\"\ninstance_ttl = \"4s\"", server.url());
    let mut gateway = Gateway::one_of_several(api.address, &store, &server.url());
    gateway.start();
    let prometheus = watch(&[&gateway]);
    assert_eq!(gateway.put("/x", 5, "x").status, 200);
    prometheus.has_looked();
    assert_eq!(prometheus.firing(), Vec::<serde_json::Value>::new(), "all is well");

    server.kill();

    prometheus.fires("FencegateInstanceLeaseEnding");
    assert_eq!(gateway.put("/x", 6, "x").code(), "fence_store_unavailable");
    prometheus.fires("FencegateStoreUnavailable");
    prometheus.fires("FencegateNotReady");
    server.start_again();
    prometheus.is_resolved("FencegateInstanceLeaseEnding");
    prometheus.is_resolved("FencegateNotReady");
    prometheus.fires("FencegateInstanceStartedOver");
}

#[test]
fn one_gateway_that_dies_is_down_and_all_of_them_are_absent() {
    let api = Downstream::start();
    let [mut one, mut two] = [Gateway::guard(api.address), Gateway::guard(api.address)];
    let prometheus = watch(&[&one, &two]);

    one.kill();
    let down = prometheus.fires("FencegateDown");
    assert_eq!(down["labels"]["instance"], one.admin.to_string(), "{down}");
    assert!(
        prometheus.firing().iter().all(|alert| alert["labels"]["alertname"] != "FencegateAbsent")
    );

    two.kill();
    prometheus.fires("FencegateAbsent");
}

fn adopt(gateway: &Gateway) -> Ended {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = fencegate(directory.path(), &["coordinator", "adopt"]);
    command.args(["--admin", &format!("http://{}", gateway.admin)]);
    run(command)
}
