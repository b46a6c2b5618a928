//! A real Prometheus with the rules of this repository, that looks at gateways of a test several times a second.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::servers::free_port;
use crate::support::http::{Connection, request};
use crate::support::wait_until;

/// Somebody else may take a port between its being found free and its being used.
const ATTEMPTS: usize = 5;

/// The server; ended when dropped.
pub(super) struct Prometheus {
    child: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Prometheus {
    /// Scrapes these admin listeners as the job `fencegate`, with rules that do not wait: what an alert needs to
    /// hold for is what the rules' own tests are about.
    pub(super) fn watching(rules: &[&Path], gateways: &[SocketAddr]) -> Prometheus {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let place = directory.path();
        for rules in rules {
            let text = fs::read_to_string(rules).expect("the rules are there");
            let quick = text.lines().map(at_once).collect::<Vec<_>>().join("\n");
            fs::write(place.join(rules.file_name().expect("a file")), quick).expect("writable");
        }
        let targets: Vec<String> = gateways.iter().map(|at| format!("'{at}'")).collect();
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\n\
             rule_files: ['*.yaml']\n\
             scrape_configs:\n  - job_name: fencegate\n    static_configs:\n      - targets: [{}]\n",
            targets.join(", ")
        );
        fs::write(place.join("prometheus.yml"), config).expect("writable");
        for _ in 0..ATTEMPTS {
            if let Some((child, address)) = launch(place) {
                return Prometheus { child, address, _directory: directory };
            }
        }
        panic!("prometheus does not start in {}", place.display());
    }

    fn ask(&self, path: &str) -> Value {
        let asked = Connection::try_open(self.address)
            .and_then(|mut connection| connection.try_exchange(request("GET", path, &[], b"")));
        let answer = asked.expect("Prometheus answers");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()["data"].clone()
    }

    /// Every rule as Prometheus understood it.
    pub(super) fn rules(&self) -> Vec<Value> {
        let groups = self.ask("/api/v1/rules")["groups"].as_array().cloned().unwrap_or_default();
        groups
            .iter()
            .flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default())
            .collect()
    }

    /// Asks a query, whatever it answers.
    #[track_caller]
    pub(super) fn takes(&self, query: &str) {
        let query =
            percent_encoding::utf8_percent_encode(query, percent_encoding::NON_ALPHANUMERIC);
        self.ask(&format!("/api/v1/query?query={query}"));
    }

    /// The alerts that fire, as they would be sent.
    pub(super) fn firing(&self) -> Vec<Value> {
        let alerts = self.ask("/api/v1/alerts")["alerts"].as_array().cloned().unwrap_or_default();
        alerts.into_iter().filter(|alert| alert["state"] == "firing").collect()
    }

    /// The one firing alert of this name; waits for it.
    #[track_caller]
    pub(super) fn fires(&self, name: &str) -> Value {
        let mut found = None;
        wait_until(&format!("{name} fires"), || {
            found = self.firing().into_iter().find(|alert| alert["labels"]["alertname"] == name);
            found.is_some()
        });
        found.expect("waited for it")
    }

    /// Waits until no alert of this name fires.
    #[track_caller]
    pub(super) fn is_resolved(&self, name: &str) {
        wait_until(&format!("{name} is resolved"), || {
            self.firing().iter().all(|alert| alert["labels"]["alertname"] != name)
        });
    }

    /// Waits until the gateways were looked at and the rules evaluated, after whatever happened so far.
    pub(super) fn has_looked(&self) {
        let looks = || {
            let answer = self.ask("/api/v1/query?query=count_over_time(up[1h])");
            answer["result"][0]["value"][1]
                .as_str()
                .and_then(|count| count.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let before = looks();
        wait_until("Prometheus looks", || looks() > before + 5);
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of a rule file, with no time to wait in it.
fn at_once(line: &str) -> String {
    let indent = &line[..line.len() - line.trim_start().len()];
    match line.trim_start().split_once(": ") {
        Some(("for", _)) => format!("{indent}for: 0s"),
        Some(("interval", _)) => format!("{indent}interval: 200ms"),
        _ => line.to_owned(),
    }
}

fn launch(place: &Path) -> Option<(Child, SocketAddr)> {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let log = fs::File::create(place.join("log")).expect("writable");
    let mut child = Command::new("prometheus")
        .arg(format!("--config.file={}", place.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", place.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .args(["--storage.tsdb.retention.time=2h", "--log.level=warn"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("prometheus is installed (Debian: prometheus)");
    let mut ended = false;
    wait_until("Prometheus is ready", || {
        ended = child.try_wait().expect("our child").is_some();
        let ready = Connection::try_open(address).and_then(|mut connection| {
            connection.try_exchange(request("GET", "/-/ready", &[], b""))
        });
        ended || ready.is_ok_and(|answer| answer.status == 200)
    });
    (!ended).then_some((child, address))
}
