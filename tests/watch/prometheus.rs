//! A real Prometheus that scrapes what it is told to.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::servers::free_port;
use crate::support::http::{Connection, request};
use crate::support::wait_until;

/// Between two scrapes. A gateway whose store stands still answers a scrape after one second.
pub const SCRAPE_SECONDS: u64 = 2;

/// What is scraped: instances with names, and labels that all of them have.
pub struct Job {
    pub name: &'static str,
    pub labels: &'static str,
    pub targets: Vec<(String, SocketAddr)>,
}

/// A running server, killed when dropped. Its data stay until the next run, to be looked at.
pub struct Prometheus {
    dir: PathBuf,
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Scrapes these, and itself as the job `prometheus`.
    pub fn scraping(jobs: &[Job]) -> Prometheus {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/watch/prometheus");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("writable");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        fs::write(dir.join("prometheus.yml"), configuration(address, jobs)).expect("writable");
        let log = File::create(dir.join("log")).expect("writable");
        // Ends with the test, however that ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "prometheus"])
            .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--enable-feature=exemplar-storage")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("setpriv is installed (Debian: util-linux)");
        let mut prometheus = Prometheus { dir, child, address };
        wait_until("Prometheus is ready (Debian: prometheus)", || {
            let ended = prometheus.child.try_wait().expect("our child");
            assert!(ended.is_none(), "Prometheus ended: {}", prometheus.log());
            prometheus.get("/-/ready").is_some()
        });
        prometheus
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The values of an instant query, one per series.
    pub fn values(&self, query: &str) -> Vec<f64> {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let answer = self.get(&format!("/api/v1/query?query={query}")).expect("it answers");
        let series = answer["data"]["result"].as_array().expect("a vector").iter();
        series.filter_map(|series| series["value"][1].as_str()?.parse().ok()).collect()
    }

    /// Waits until a query has a series, such as a comparison that holds.
    #[track_caller]
    pub fn wait_for(&self, query: &str) {
        wait_until(query, || !self.values(query).is_empty());
    }

    /// Names of all metrics that it has.
    pub fn metrics(&self) -> Vec<String> {
        let answer = self.get("/api/v1/label/__name__/values").expect("it answers");
        serde_json::from_value(answer["data"].clone()).expect("a list of names")
    }

    fn get(&self, target: &str) -> Option<Value> {
        let mut connection = Connection::try_open(self.address).ok()?;
        let answer = connection.try_exchange(request("GET", target, &[], b"")).ok()?;
        if answer.status != 200 {
            return None;
        }
        Some(serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Seconds since 1970, as Prometheus counts time.
pub fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than that").as_secs_f64()
}

fn configuration(own: SocketAddr, jobs: &[Job]) -> String {
    let mut text = format!(
        "global: {{scrape_interval: {SCRAPE_SECONDS}s, scrape_timeout: {SCRAPE_SECONDS}s}}\nscrape_configs:\n\
         - job_name: prometheus\n  static_configs: [{{targets: ['{own}']}}]\n"
    );
    for Job { name, labels, targets } in jobs {
        text += &format!("- job_name: {name}\n  static_configs:\n");
        for (instance, address) in targets {
            text += &format!(
                "  - {{targets: ['{address}'], labels: {{instance: '{instance}'{labels}}}}}\n"
            );
        }
    }
    text
}
