//! A `fencegate serve` with links in front of it, started again by whoever tends it whenever it has ended.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::link::{Link, Network};
use super::process::Process;

/// Between the end of one that could not start and the next try.
const PAUSE: Duration = Duration::from_millis(300);
const LISTEN: &str = "\
[listen]
proxy = \"127.0.0.1:0\"
leases = \"127.0.0.1:0\"
admin = \"127.0.0.1:0\"
";

/// One instance after the other, in the same place.
pub struct Gateway {
    dir: PathBuf,
    process: Option<Process>,
    /// Logs are counted from 1, one a run.
    runs: usize,
    is_listening: bool,
    start_at: Instant,
    /// Ends that nobody caused.
    faults: Vec<String>,
    /// Where workers write.
    pub proxy: Link,
    /// Where workers get leases.
    pub leases: Link,
}

impl Gateway {
    /// It starts when it is tended. `config` says nothing of listeners.
    pub fn new(dir: PathBuf, network: &Network, config: &str) -> Gateway {
        fs::create_dir(&dir).expect("a writable directory");
        fs::write(dir.join("fencegate.toml"), format!("{LISTEN}{config}")).expect("writable");
        Gateway {
            dir,
            process: None,
            runs: 0,
            is_listening: false,
            start_at: Instant::now(),
            faults: Vec::new(),
            proxy: network.link(),
            leases: network.link(),
        }
    }

    /// Starts it where it has ended, and leads its links to where it listens.
    pub fn tend(&mut self) {
        match &mut self.process {
            None if Instant::now() >= self.start_at => self.start(),
            None => {}
            Some(process) => {
                if let Some(status) = process.ended() {
                    self.process = None;
                    self.start_at = Instant::now() + PAUSE;
                    self.judge(status);
                } else if !self.is_listening {
                    self.look_for_listeners();
                }
            }
        }
    }

    pub fn is_listening(&self) -> bool {
        self.is_listening
    }

    /// Kills it; it is started again after this time.
    pub fn kill(&mut self, rest: Duration) -> bool {
        let killed = self.process.take().is_some();
        self.is_listening = false;
        self.start_at = Instant::now() + rest;
        killed
    }

    pub fn signal(&mut self, signal: Signal) -> bool {
        self.process.as_mut().is_some_and(|process| process.signal(signal))
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let log = self.log(self.runs);
        let last = log.lines().rev().take(3).map(|line| format!("\n{line}"));
        last.collect::<Vec<_>>().into_iter().rev().collect()
    }

    /// What was wrong with its runs, by themselves.
    pub fn faults(&self) -> Vec<String> {
        let panics = (1..=self.runs).filter(|run| self.log(*run).contains("panicked"));
        let panics = panics.map(|run| format!("panicked: {}", self.log_path(run).display()));
        self.faults.iter().cloned().chain(panics).collect()
    }

    fn start(&mut self) {
        self.runs += 1;
        self.is_listening = false;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_fencegate"), "serve", "--config"])
            .arg(self.dir.join("fencegate.toml"));
        self.process = Some(Process::spawn(&mut command, &self.log_path(self.runs)));
    }

    fn look_for_listeners(&mut self) {
        let log = self.log(self.runs);
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let lines = whole.lines().filter_map(|line| serde_json::from_str(line).ok());
        let is_it = |line: &serde_json::Value| line["message"] == "listening";
        let Some(line) = lines.into_iter().find(is_it) else { return };
        let address = |name: &str| -> SocketAddr {
            line[name].as_str().and_then(|at| at.parse().ok()).expect("an address")
        };
        self.proxy.lead_to(address("proxy"));
        self.leases.lead_to(address("leases"));
        self.is_listening = true;
    }

    /// One that cannot start, since what it needs is not there, says so and ends; that is no fault.
    fn judge(&mut self, status: ExitStatus) {
        let is_fault = self.is_listening || status.signal().is_some() || status.code() == Some(101);
        self.is_listening = false;
        if is_fault {
            let log = self.log_path(self.runs);
            self.faults.push(format!("ended with {status}: {}", log.display()));
        }
    }

    fn log(&self, run: usize) -> String {
        fs::read_to_string(self.log_path(run)).unwrap_or_default()
    }

    fn log_path(&self, run: usize) -> PathBuf {
        self.dir.join(format!("log.{run}"))
    }
}
