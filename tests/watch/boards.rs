//! The dashboards as files: made from their source, known to Grafana field by field, and whole for their reader.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// All of them.
pub const BOARDS: [&str; 2] = ["operators", "resource"];

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A dashboard's file.
pub fn path(board: &str) -> PathBuf {
    Path::new(ROOT).join(format!("dashboards/{board}.json"))
}

pub fn read(board: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(path(board)).expect("it is there")).expect("JSON")
}

/// Panels that show something.
pub fn panels(board: &Value) -> impl Iterator<Item = &Value> {
    board["panels"].as_array().expect("a list").iter().filter(|panel| panel["type"] != "row")
}

/// Runs a Python program of this repository with what `test.sh` installed for it.
#[track_caller]
pub fn python(program: &str, arguments: &[String]) -> String {
    let installed = Path::new(ROOT).join("target/watch/python");
    assert!(installed.is_dir(), "test.sh installs tests/watch/requirements.txt to {installed:?}");
    let output = Command::new("python3")
        .arg("-B")
        .arg(Path::new(ROOT).join(program))
        .args(arguments)
        .env("PYTHONPATH", installed)
        .stdin(Stdio::null())
        .output()
        .expect("python3 is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every query that a dashboard makes, of panels and annotations.
fn queries(board: &Value) -> Vec<String> {
    let targets = panels(board).flat_map(|panel| panel["targets"].as_array().expect("a list"));
    let annotations = board["annotations"]["list"].as_array().expect("a list").iter();
    targets.chain(annotations).map(|it| it["expr"].as_str().expect("a query").to_owned()).collect()
}

#[test]
fn the_files_are_what_their_source_makes() {
    python("dashboards/source", &["--check".to_owned()]);
}

#[test]
fn grafana_knows_every_field() {
    let files = BOARDS.map(|board| path(board).display().to_string());
    python("tests/watch/schema.py", &files);
}

#[test]
fn a_field_that_grafana_does_not_know_is_found() {
    let mut board = read("operators");
    board["panels"][1]["fieldConfig"]["defaults"]["decimal"] = 1.into();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("board.json");
    fs::write(&file, board.to_string()).expect("writable");
    let installed = Path::new(ROOT).join("target/watch/python");
    let output = Command::new("python3")
        .args(["-B".as_ref(), Path::new(ROOT).join("tests/watch/schema.py").as_os_str()])
        .arg(file)
        .env("PYTHONPATH", installed)
        .output()
        .expect("python3 is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("/fieldConfig/defaults/decimal"), "{said}");
}

#[test]
fn every_panel_says_what_it_shows_and_in_which_unit() {
    for name in BOARDS {
        let board = read(name);
        let mut titles = BTreeSet::new();
        for panel in panels(&board) {
            let title = panel["title"].as_str().expect("a title");
            assert!(titles.insert(title), "{name} has {title} twice");
            let description = panel["description"].as_str().unwrap_or_default();
            assert!(description.len() > 30, "{name}, {title}: {description:?}");
            assert!(
                panel["fieldConfig"]["defaults"]["unit"].is_string(),
                "{name}, {title}: a unit"
            );
            for part in panel["targets"].as_array().expect("a list").iter().chain([panel]) {
                assert_eq!(part["datasource"]["uid"], "${datasource}", "{name}, {title}");
            }
        }
        for annotation in board["annotations"]["list"].as_array().expect("a list") {
            assert_eq!(annotation["datasource"]["uid"], "${datasource}", "{annotation}");
        }
    }
}

#[test]
fn panels_do_not_cover_each_other() {
    for name in BOARDS {
        let board = read(name);
        let mut taken = BTreeSet::new();
        for panel in board["panels"].as_array().expect("a list") {
            let at = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
            assert!(at("x") + at("w") <= 24, "{panel}");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{name}, {}", panel["title"]);
                }
            }
        }
    }
}

/// A window of a fixed length is empty at a longer scrape interval and blurred at a shorter one.
#[test]
fn windows_follow_the_scrape_interval_and_the_zoom() {
    for name in BOARDS {
        for query in queries(&read(name)) {
            let windows =
                query.split('[').skip(1).map(|rest| rest.split(']').next().expect("an end"));
            for window in windows {
                assert!(
                    ["$__rate_interval", "$__range"].contains(&window),
                    "[{window}] in {query}"
                );
            }
            let selectors = query.matches('{').count();
            assert_eq!(query.matches("instance=~\"$instance\"").count(), selectors, "{query}");
            assert_eq!(query.matches("job=~\"$job\"").count(), selectors, "{query}");
        }
    }
}
