//! The workers of `examples/workers`, which know only the lease API and the `Fencing-Token` header: what they do
//! with a lease that lasts, and what becomes of them when they were suspended for longer than it did.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::command::{Ended, run};
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::wait_until;
use crate::support::wire::Wire;

const RESOURCE: &str = "/reports/may";
/// Short, so that it runs out soon; long enough that a busy machine renews it.
const TTL_MS: u64 = 6000;

#[derive(Clone, Copy, Debug)]
enum Language {
    Go,
    Java,
    Node,
    Python,
}

impl Language {
    fn command(self) -> Command {
        match self {
            Language::Go => Command::new(go_worker()),
            Language::Java => {
                let mut command = Command::new("java");
                command.arg("-cp").arg(java_classes()).arg("Worker");
                command
            }
            Language::Node => {
                let mut command = Command::new("node");
                command.arg(source("node/worker.mjs"));
                command
            }
            Language::Python => {
                let mut command = Command::new("python3");
                command.arg(source("python/worker.py"));
                command
            }
        }
    }

    /// A worker that takes leases from `gateway`, and writes by way of `port`.
    fn worker(self, gateway: &Gateway, port: u16, owner: &str, lines: u32) -> Command {
        let mut command = self.command();
        command
            .args([owner, &lines.to_string()])
            .env("LEASES", format!("http://{}", gateway.leases))
            .env("GATEWAY", format!("http://127.0.0.1:{port}"))
            .env("TTL_MS", TTL_MS.to_string())
            .env("PAUSE_MS", "100");
        command
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/workers").join(name)
}

fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/foreign").join(name)
}

fn go_worker() -> &'static Path {
    static WORKER: OnceLock<PathBuf> = OnceLock::new();
    WORKER.get_or_init(|| {
        let worker = built("go-sample");
        let mut build = Command::new("go");
        build.args(["build", "-o"]).args([&worker, &source("go/worker.go")]);
        build.env("GO111MODULE", "off").env("GOCACHE", built("go-cache"));
        succeeds(build, "go is installed (Debian: golang-go)");
        worker
    })
}

fn java_classes() -> &'static Path {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let classes = built("java-sample");
        let mut build = Command::new("javac");
        build
            .args(["-Xlint:all,-serial", "-Werror", "-d"])
            .args([&classes, &source("java/Worker.java")]);
        succeeds(build, "javac is installed (Debian: openjdk-17-jdk-headless)");
        classes
    })
}

#[track_caller]
fn succeeds(mut command: Command, hint: &str) {
    let output = command.output().expect(hint);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A worker that goes on while the test does something else.
struct Running {
    child: Child,
    errors: Receiver<String>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Running { child, errors: receiver }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits for its end; its exit code and what it said.
    fn ends(mut self) -> (Option<i32>, String) {
        let mut status = None;
        wait_until("the worker ends", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        let said: Vec<String> = self.errors.iter().collect();
        (status.and_then(|status| status.code()), said.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes over when the lease of whoever stands still has run out.
fn taken_over(gateway: &Gateway) -> u64 {
    wait_until("its lease runs out", || gateway.holder(RESOURCE).is_none());
    let token = gateway.acquire(RESOURCE, "b", 60_000);
    assert_eq!(gateway.put(RESOURCE, token, "of b").status, 200);
    token
}

/// Longer than its lease, so that it has to renew it.
fn writes_all_lines_under_one_lease(language: Language) {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let mut worker = language.worker(&gateway, gateway.proxy.port(), "a", 5);
    worker.env("PAUSE_MS", (TTL_MS / 3).to_string());

    let Ended { code, stdout, stderr } = run(worker);

    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.ends_with("wrote line 5\n"), "{stdout}");
    assert_eq!(api.tokens(RESOURCE), [1; 5]);
    let bodies: Vec<_> = api.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies[4], b"line 5 of a\n");
    assert_eq!(gateway.holder(RESOURCE), None, "it was released");
}

/// Its write is in the network, and it is suspended itself, until another one has taken over.
fn late_write_is_refused_and_final(language: Language) {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let network = Wire::to(gateway.proxy.port());
    let worker = Running::start(language.worker(&gateway, network.port, "a", 100_000));
    api.wait_for(2);
    network.hold_requests();
    wait_until("a write is under way", || network.holds_back());
    worker.signal(Signal::STOP);
    let b = taken_over(&gateway);

    network.mend();
    worker.signal(Signal::CONT);

    let (code, said) = worker.ends();
    assert_eq!(code, Some(76), "{said}");
    assert!(said.contains("stopped: stale_fencing_token: "), "{said}");
    assert_eq!(api.tokens(RESOURCE).last(), Some(&b));
    assert_eq!(api.seen().last().map(|seen| seen.body.clone()), Some(b"of b".to_vec()));
    assert_eq!(gateway.holder(RESOURCE).as_deref(), Some("b"), "it let go of its own lease alone");
}

/// It is suspended somewhere, most likely between two writes, and notices by its clock.
fn suspended_worker_stops_by_itself(language: Language) {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let mut worker = language.worker(&gateway, gateway.proxy.port(), "a", 100_000);
    worker.env("PAUSE_MS", "1000");
    let worker = Running::start(worker);
    api.wait_for(2);
    worker.signal(Signal::STOP);
    let b = taken_over(&gateway);

    worker.signal(Signal::CONT);

    let (code, said) = worker.ends();
    assert_eq!(code, Some(76), "{said}");
    assert_eq!(api.tokens(RESOURCE).last(), Some(&b));
}

fn says_what_it_cannot_know_or_have(language: Language) {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let worker = || language.worker(&gateway, gateway.proxy.port(), "a", 1);

    api.behave(RESOURCE, Behaviour::ResetInstead);
    let doubtful = run(worker());
    assert_eq!(doubtful.code, Some(1), "{doubtful:?}");
    assert!(doubtful.stderr.contains("may have happened"), "{doubtful:?}");
    assert_eq!(api.seen().len(), 1, "it was not sent again");

    gateway.acquire(RESOURCE, "b", 60_000);
    let waits = run(worker());
    assert_eq!(waits.code, Some(75), "{waits:?}");
    assert!(waits.stderr.contains("another worker has the lease"), "{waits:?}");
    assert_eq!(api.seen().len(), 1);
}

/// The four stories, told by one language.
macro_rules! stories {
    ($module:ident, $language:expr) => {
        mod $module {
            use super::Language;

            #[test]
            fn writes_all_lines_under_one_lease() {
                super::writes_all_lines_under_one_lease($language);
            }

            #[test]
            fn late_write_is_refused_and_final() {
                super::late_write_is_refused_and_final($language);
            }

            #[test]
            fn suspended_worker_stops_by_itself() {
                super::suspended_worker_stops_by_itself($language);
            }

            #[test]
            fn says_what_it_cannot_know_or_have() {
                super::says_what_it_cannot_know_or_have($language);
            }
        }
    };
}

stories!(go, Language::Go);
stories!(java, Language::Java);
stories!(node, Language::Node);
stories!(python, Language::Python);
