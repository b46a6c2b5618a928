//! Workers that know nothing of Fencegate: they lock with etcd's Go package, with `etcdctl lock` and
//! with python-etcd3, and are fenced by the revision that their own key has.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::servers::etcd::Etcd;
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::http::assert_problem;
use crate::support::{SOON, wait_until};

/// The resource, and how it is written in etcd.
const RESOURCE: &str = "/a b";
const WRITTEN: &str = "%2Fa%20b";
/// Where the gateway takes the resource from.
const TARGET: &str = "/a%20b";

/// What a worker locks with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Go,
    Etcdctl,
    Python,
}

impl Kind {
    const fn prefix(self) -> &'static str {
        match self {
            Kind::Go | Kind::Etcdctl => "/fencegate/leases",
            Kind::Python => "/locks",
        }
    }

    const fn layout(self) -> &'static str {
        match self {
            Kind::Go | Kind::Etcdctl => "mutex",
            Kind::Python => "key",
        }
    }

    fn command(self, etcd: &Etcd) -> Command {
        let endpoint = etcd.endpoints().remove(0);
        let name = format!("{}/{WRITTEN}", self.prefix());
        match self {
            Kind::Go => {
                let mut command = Command::new(go_worker());
                command.args([endpoint.as_str(), &name, "2"]);
                command
            }
            Kind::Etcdctl => {
                let mut command = Command::new("etcdctl");
                command.env("ETCDCTL_API", "3");
                command.args(["--endpoints", &endpoint, "lock", "--ttl", "2", &name]);
                command
            }
            Kind::Python => {
                let (host, port) = endpoint.split_once(':').expect("host and port");
                let mut command = Command::new("python3");
                command.env("PYTHONPATH", python_packages());
                command.env("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python");
                command.arg(source("worker.py")).args([host, port, WRITTEN, "2"]);
                command
            }
        }
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/foreign").join(name)
}

fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/foreign").join(name)
}

/// Builds the Go worker once, out of Debian's packages alone.
fn go_worker() -> &'static Path {
    static WORKER: OnceLock<PathBuf> = OnceLock::new();
    WORKER.get_or_init(|| {
        let worker = built("go-worker");
        let output = Command::new("go")
            .args(["build", "-o"])
            .args([&worker, &source("worker.go")])
            .envs([("GO111MODULE", "off"), ("GOPATH", "/usr/share/gocode"), ("CGO_ENABLED", "0")])
            .env("GOCACHE", built("go-cache"))
            .output()
            .expect("go is installed (Debian: golang-go, golang-etcd-server-dev)");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        worker
    })
}

fn python_packages() -> PathBuf {
    let packages = built("python");
    let hint = "python-etcd3 is not there; test.sh installs it, as tests/it/foreign/requirements.txt \
                says";
    assert!(packages.join("etcd3").is_dir(), "{hint}");
    packages
}

/// A worker that waits for the lock, or has it.
struct Worker {
    kind: Kind,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Worker {
    fn start(kind: Kind, etcd: &Etcd) -> Worker {
        let mut child = kind
            .command(etcd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Worker { kind, input: child.stdin.take(), child, lines }
    }

    /// Waits until it has the lock; answers its key.
    fn key(&self) -> String {
        let line = self.lines.recv_timeout(SOON).expect("it gets the lock");
        line.split(' ').next().unwrap_or_default().to_owned()
    }

    fn has_it(&self) -> bool {
        self.lines.try_recv().is_ok()
    }

    /// Lets it unlock and end, as it does by itself.
    fn unlock(mut self) {
        drop(self.input.take());
        if self.kind == Kind::Etcdctl {
            kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        }
        wait_until("the worker ends", || matches!(self.child.try_wait(), Ok(Some(_))));
    }
}

/// Without another word to etcd, as a worker that crashes.
impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The create revision of a key: what any client can read.
fn create_revision(etcd: &Etcd, key: &str) -> u64 {
    let answer: Value = serde_json::from_str(&etcd.ctl(&["get", key, "-w", "json"])).expect("JSON");
    answer["kvs"][0]["create_revision"].as_u64().expect("the key is there")
}

/// Keys that hold the lock or wait for it.
fn keys(etcd: &Etcd, kind: Kind) -> Vec<String> {
    let place = format!("{}/{WRITTEN}", kind.prefix());
    let listed = etcd.ctl(&["get", &place, "--prefix", "--keys-only"]);
    listed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn gateway(etcd: &Etcd, kind: Kind, api: &Downstream) -> Gateway {
    Gateway::with_config(&format!(
        "[coordinator]\nurl = \"etcd://{}\"\nprefix = \"{}\"\nlayout = \"{}\"\n\
         [[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"2s\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\ndrain = \"1s\"\nwait = \"20s\"\n",
        etcd.endpoints().join(","),
        kind.prefix(),
        kind.layout(),
        api.address
    ))
}

fn is_fenced(kind: Kind) {
    let etcd = Etcd::single();
    let api = Downstream::start();
    let gateway = gateway(&etcd, kind, &api);

    let a = Worker::start(kind, &etcd);
    let token_of_a = create_revision(&etcd, &a.key());
    let forged = gateway.put(TARGET, token_of_a + 1, "forged");
    assert_problem(&forged, 403, "fencing_token_not_held", "not_forwarded");
    assert_eq!(gateway.put(TARGET, token_of_a, "a").status, 200);

    let b = Worker::start(kind, &etcd);
    if kind != Kind::Python {
        wait_until("b waits", || keys(&etcd, kind).len() == 2);
        let revisions = keys(&etcd, kind).into_iter().map(|key| create_revision(&etcd, &key));
        let of_b = revisions.max().expect("two keys");
        let waits = gateway.put(TARGET, of_b, "b, who waits");
        assert_problem(&waits, 403, "fencing_token_not_held", "not_forwarded");
    }
    assert!(!b.has_it());
    a.unlock();
    let token_of_b = create_revision(&etcd, &b.key());
    assert!(token_of_b > token_of_a);
    assert_eq!(gateway.put(TARGET, token_of_b, "b").status, 200);
    let late = gateway.put(TARGET, token_of_a, "a, who is late");
    assert_problem(&late, 412, "stale_fencing_token", "not_forwarded");

    // It crashes, and its lease runs out; the next one takes its lease through the gateway.
    drop(b);
    let mut token_of_c = None;
    wait_until("b's lease runs out", || {
        let body = serde_json::json!({"owner": "c", "ttl_ms": 60_000, "wait_ms": 1000});
        let answer = gateway.lease_api("POST", RESOURCE, "", &body);
        let json = answer.json();
        token_of_c = json["token"].as_str().and_then(|token| token.parse().ok());
        answer.status == 201
    });
    let token_of_c: u64 = token_of_c.expect("granted");
    assert_eq!(gateway.put(TARGET, token_of_c, "c").status, 200);
    let late = gateway.put(TARGET, token_of_b, "b, who is late");
    assert_problem(&late, 412, "stale_fencing_token", "not_forwarded");
    assert_eq!(api.tokens(TARGET), [token_of_a, token_of_b, token_of_c]);

    // And one that waits for the gateway's own lease gets it.
    let d = Worker::start(kind, &etcd);
    if kind != Kind::Python {
        wait_until("d waits", || keys(&etcd, kind).len() == 2);
    }
    assert!(!d.has_it());
    assert_eq!(gateway.release(RESOURCE, "c", token_of_c).status, 204);
    let token_of_d = create_revision(&etcd, &d.key());
    assert_eq!(gateway.put(TARGET, token_of_d, "d").status, 200);
    d.unlock();
}

#[test]
fn workers_with_the_mutex_of_go_are_fenced() {
    is_fenced(Kind::Go);
}

#[test]
fn workers_with_etcdctl_lock_are_fenced() {
    is_fenced(Kind::Etcdctl);
}

#[test]
fn workers_with_python_etcd3_are_fenced() {
    is_fenced(Kind::Python);
}
