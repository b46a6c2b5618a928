//! A real Prometheus that scrapes one gateway.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{free_port, wait_until};

/// Killed when dropped.
pub struct Prometheus {
    _directory: TempDir,
    child: Child,
    port: u16,
}

impl Prometheus {
    /// Scrapes the admin listener at `target` every second, exemplars included.
    pub fn scraping(target: SocketAddr) -> Prometheus {
        let directory = tempfile::tempdir().unwrap();
        let (at, port) = (directory.path(), free_port());
        let config = format!(
            "scrape_configs:\n  - job_name: fencegate\n    scrape_interval: 1s\n    \
             scrape_timeout: 1s\n    static_configs:\n      - targets: [\"{target}\"]\n"
        );
        fs::write(at.join("prometheus.yml"), config).unwrap();
        let child = Command::new("prometheus")
            .arg("--enable-feature=exemplar-storage")
            .arg(format!("--config.file={}", at.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", at.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(at.join("log")).unwrap())
            .spawn()
            .expect("prometheus is installed (Debian: prometheus)");
        let prometheus = Prometheus { _directory: directory, child, port };
        wait_until("Prometheus is ready", || prometheus.get("/-/ready").is_some());
        prometheus
    }

    /// The `data` of an answer of its API, which may not have any yet.
    pub fn api(&self, target: &str) -> Value {
        let body = self.get(target).unwrap_or_default();
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        answer["data"].clone()
    }

    fn get(&self, target: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(super::SOON)).ok()?;
        write!(stream, "GET {target} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.split(' ').nth(1).filter(|status| *status == "200")?;
        Some(body.to_owned())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
