//! Everything that the dashboards are about happens to real gateways; then every query of every panel, variable and
//! annotation has to show it, for one gateway, for some, and for thirty.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::boards::{self, BOARDS};
use crate::cast::{Cast, STORY};
use crate::events::let_everything_happen;
use crate::load::Load;
use crate::prometheus::{Job, Prometheus, SCRAPE_SECONDS, unix_time};
use crate::repeater::repeat;

/// Of panels that may show nothing but zero: what would be a defect if it could be provoked from outside, and numbers
/// of the last moment alone. They have to be there all the same.
const MAY_BE_ZERO: [&str; 2] = ["What was not told", "Each instance"];
/// Of queries that have nothing to show for a gateway with SQLite and its own coordinator.
const NEED_SERVERS: [&str; 3] =
    ["fencegate_postgres_", "fencegate_etcd_", "fencegate_instance_lease_remaining_seconds"];

/// A gateway as thirty: the same two processes under other names.
fn thirty(cast: &Cast) -> Vec<(String, std::net::SocketAddr)> {
    let both = [repeat(cast.one.admin), repeat(cast.two.admin)];
    (1..=30).map(|nth| (format!("gateway-{nth:02}"), both[nth % 2])).collect()
}

/// What was asked of Prometheus, and when.
struct Asked<'a> {
    prometheus: &'a Prometheus,
    began: f64,
    ended: f64,
}

impl Asked<'_> {
    /// Asks all that a dashboard asks, for these jobs, and draws it if there is a place for the picture.
    fn ask(&self, board: &str, jobs: &[&str], picture: Option<&Path>) -> Value {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("data.json");
        let minutes = (self.ended - self.began) / 60.0;
        let mut arguments = vec![boards::path(board).display().to_string()];
        arguments.extend(picture.map(|picture| picture.display().to_string()));
        for (name, value) in [
            ("--prometheus", self.prometheus.url()),
            ("--scrape", SCRAPE_SECONDS.to_string()),
            ("--end", self.ended.to_string()),
            ("--minutes", minutes.to_string()),
            ("--data", data.display().to_string()),
            ("--set", format!("resource={STORY}")),
        ] {
            arguments.extend([name.to_owned(), value]);
        }
        for job in jobs {
            arguments.extend(["--set".to_owned(), format!("job={job}")]);
        }
        boards::python("dashboards/picture", &arguments);
        serde_json::from_str(&fs::read_to_string(data).expect("written")).expect("JSON")
    }
}

#[test]
fn every_query_shows_what_happened_for_one_gateway_and_for_thirty() {
    let mut cast = Cast::start();
    let named = |name: &str, at| (name.to_owned(), at);
    let fleet = vec![named("gateway-1", cast.one.admin), named("gateway-2", cast.two.admin)];
    let alone = vec![named("sidecar-1", cast.alone.admin)];
    let prometheus = Prometheus::scraping(&[
        Job { name: "fleet", labels: ", namespace: 'payments'", targets: fleet },
        Job { name: "alone", labels: "", targets: alone },
        Job { name: "thirty", labels: ", namespace: 'many'", targets: thirty(&cast) },
    ]);
    let began = unix_time();
    let load = Load::start(&cast);
    let_everything_happen(&mut cast, &prometheus);
    let asked = Asked { prometheus: &prometheus, began, ended: unix_time() };
    load.stop();

    for board in BOARDS {
        let picture = pictures().join(format!("{board}.png"));
        // A resource's story is one job's.
        let (of_all, of_few) =
            if board == "resource" { (None, Some(&*picture)) } else { (Some(&*picture), None) };
        let several = asked.ask(board, &["fleet", "alone"], of_all);
        assert_variables_and_annotations(board, &several);
        assert_everything_is_seen(board, &several);
        let one = asked.ask(board, &["alone"], None);
        assert_one_is_enough(board, &one);
        let few = asked.ask(board, &["fleet"], of_few);
        let many = asked.ask(board, &["thirty"], None);
        assert_shown_alike(board, &few, &many);
        assert!(fs::metadata(&picture).expect("it was drawn").len() > 10_000, "{picture:?}");
    }
    assert_metrics_exist(&prometheus);
}

/// Where the pictures go: looked at, and checked in if they are good.
fn pictures() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/watch/pictures");
    fs::create_dir_all(&directory).expect("writable");
    directory
}

fn list<'v>(value: &'v Value, key: &str) -> &'v Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("{key} in {value}"))
}

/// Title, query and series of each query of each panel.
fn targets(told: &Value) -> Vec<(&str, &str, &Vec<Value>)> {
    let panels = list(told, "panels").iter();
    let targets = panels.flat_map(|panel| {
        list(panel, "targets").iter().map(move |target| {
            let (title, query) = (panel["title"].as_str(), target["expr"].as_str());
            (title.expect("a title"), query.expect("a query"), list(target, "series"))
        })
    });
    targets.collect()
}

fn is_anything(series: &[Value], is_it: impl Fn(f64) -> bool) -> bool {
    let points = series.iter().flat_map(|series| list(series, "points"));
    points.filter_map(|point| point[1].as_f64()).any(is_it)
}

fn assert_variables_and_annotations(board: &str, told: &Value) {
    for variable in list(told, "variables") {
        assert!(!list(variable, "options").is_empty(), "{board}: {variable}");
    }
    for annotation in list(told, "annotations") {
        assert!(!list(annotation, "series").is_empty(), "{board}: {annotation}");
        let marks: usize =
            list(annotation, "series").iter().map(|it| list(it, "points").len()).sum();
        assert!(marks < 100, "{board}: {} marks everything", annotation["name"]);
    }
}

/// A query that only ever shows zero has not been seen to show anything.
fn assert_everything_is_seen(board: &str, told: &Value) {
    let empty: Vec<_> = targets(told)
        .into_iter()
        .filter(|(title, _, series)| {
            let may_be_zero = MAY_BE_ZERO.contains(title);
            !is_anything(series, |value| value != 0.0 || may_be_zero)
        })
        .map(|(title, query, _)| format!("{title}: {query}"))
        .collect();
    assert!(empty.is_empty(), "{board} shows nothing for\n{}", empty.join("\n"));
}

fn assert_one_is_enough(board: &str, told: &Value) {
    let empty: Vec<_> = targets(told)
        .into_iter()
        .filter(|(_, query, series)| {
            let may_be_empty =
                leaves_zero_out(query) || NEED_SERVERS.iter().any(|metric| query.contains(metric));
            series.is_empty() && !may_be_empty
        })
        .map(|(title, query, _)| format!("{title}: {query}"))
        .collect();
    assert!(empty.is_empty(), "{board} shows nothing of one gateway for\n{}", empty.join("\n"));
}

/// Two gateways as thirty: as many lines, unless each line is an instance.
fn assert_shown_alike(board: &str, few: &Value, many: &Value) {
    for ((title, query, few), (_, _, many)) in targets(few).into_iter().zip(targets(many)) {
        if leaves_zero_out(query) {
            // What happened once may have been scraped in time under one name and not under another.
            continue;
        }
        assert_eq!(few.is_empty(), many.is_empty(), "{board}, {title}: {query}");
        assert_eq!(kinds(few), kinds(many), "{board}, {title}: {query}");
        let is_by_instance = few.iter().any(|series| series["labels"]["instance"].is_string());
        assert!(is_by_instance || many.len() == few.len(), "{board}, {title}: {query}");
        assert!(many.len() <= 60, "{board}, {title}: {} lines", many.len());
    }
}

fn leaves_zero_out(query: &str) -> bool {
    query.ends_with("> 0")
}

/// Labels of all series, but for the names of instances, job and namespace.
fn kinds(series: &[Value]) -> BTreeSet<Vec<(String, String)>> {
    let labels = series.iter().map(|series| series["labels"].as_object().expect("labels"));
    let kept = |name: &str| !["instance", "job", "namespace"].contains(&name);
    labels
        .map(|labels| {
            let kept = labels.iter().filter(|(name, _)| kept(name));
            kept.map(|(name, value)| (name.clone(), value.to_string())).collect()
        })
        .collect()
}

/// Names are whole words of the files, so that a comment or a transformation cannot hide one.
fn assert_metrics_exist(prometheus: &Prometheus) {
    let known: BTreeSet<String> = prometheus.metrics().into_iter().collect();
    for board in BOARDS {
        let text = fs::read_to_string(boards::path(board)).expect("it is there");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<&str> = words
            .filter(|word| word.starts_with("fencegate_") || word.starts_with("process_"))
            .collect();
        let unknown: Vec<_> = named.iter().filter(|name| !known.contains(**name)).collect();
        assert!(unknown.is_empty(), "{board} names {unknown:?}, which no gateway has");
        assert!(named.len() > 5, "{board}: {named:?}");
    }
}
