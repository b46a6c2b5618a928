//! Workers that go about their work whatever happens: each takes a lease, writes and reads under it, renews it and hands
//! over; now and then one of them is late.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cast::{Cast, STORY};
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, Connection, request};

/// Between two requests of one worker.
const PACE: Duration = Duration::from_millis(90);
/// Of workers' leases; they renew every third of it.
const TTL_MS: u64 = 3000;

/// Running workers.
pub struct Load {
    is_over: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

struct Worker {
    owner: String,
    resource: String,
    path: String,
    proxy: SocketAddr,
    leases: SocketAddr,
    /// Writes under one lease.
    writes: usize,
    is_over: Arc<AtomicBool>,
}

impl Load {
    /// Two workers for each resource, at each gateway that knows it. They hold the resource of the story for longest.
    pub fn start(cast: &Cast) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut workers = Vec::new();
        let mut hire = |gateway: &Gateway, name: &str, resource: &str, path: &str, writes| {
            let worker = Worker {
                owner: name.to_owned(),
                resource: resource.to_owned(),
                path: path.to_owned(),
                proxy: gateway.proxy,
                leases: gateway.leases,
                writes,
                is_over: Arc::clone(&is_over),
            };
            workers.push(thread::spawn(move || worker.work()));
        };
        hire(&cast.one, "ann", STORY, "/accounts/7", 100);
        hire(&cast.two, "bob", STORY, "/accounts/7", 140);
        for (gateway, name) in [(&cast.one, "cem"), (&cast.two, "dia")] {
            hire(gateway, name, "/invoices/may", "/invoices/may", 20);
        }
        for (resource, path, writes) in
            [(STORY, "/accounts/7", 110), ("/invoices/may", "/invoices/may", 30)]
        {
            hire(&cast.alone, "eve", resource, path, writes);
            hire(&cast.alone, "fay", resource, path, writes);
        }
        Load { is_over, workers }
    }

    /// Lets the workers end.
    pub fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.join().expect("a worker does not panic");
        }
    }
}

impl Worker {
    fn work(&self) {
        let mut earlier = None;
        while !self.is_over.load(Ordering::Relaxed) {
            let Some(token) = self.acquire() else {
                thread::sleep(PACE);
                continue;
            };
            // What it forgot to end before it lost its last lease.
            if let Some(earlier) = earlier.filter(|_| fastrand::bool()) {
                self.write(earlier);
            }
            self.hold(token);
            earlier = Some(token);
        }
    }

    fn hold(&self, token: u64) {
        for nth in 0..self.writes {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let answer = self.write(token);
            if answer.is_some_and(|answer| [403, 412].contains(&answer.status)) {
                thread::sleep(PACE);
                return;
            }
            if nth % 4 == 0 {
                self.send(self.proxy, "GET", &self.path, &[], b"");
            }
            if nth % 12 == 11 && !self.renew(token) {
                return;
            }
            thread::sleep(PACE);
        }
        let query = format!("?owner={}&token={token}", self.owner);
        self.lease("DELETE", &query, &serde_json::Value::Null);
    }

    fn acquire(&self) -> Option<u64> {
        let wait = serde_json::json!({"owner": self.owner, "ttl_ms": TTL_MS, "wait_ms": 2000});
        let answer = self.lease("POST", "", &wait).filter(|answer| answer.status == 201)?;
        answer.json()["token"].as_str()?.parse().ok()
    }

    fn renew(&self, token: u64) -> bool {
        let renewal =
            serde_json::json!({"owner": self.owner, "token": token.to_string(), "ttl_ms": TTL_MS});
        self.lease("POST", "/renew", &renewal).is_some_and(|answer| answer.status == 200)
    }

    fn write(&self, token: u64) -> Option<Answer> {
        self.send(self.proxy, "PUT", &self.path, &[("Fencing-Token", &token.to_string())], b"x")
    }

    fn lease(&self, method: &str, rest: &str, body: &serde_json::Value) -> Option<Answer> {
        let name = percent_encoding::utf8_percent_encode(
            &self.resource,
            percent_encoding::NON_ALPHANUMERIC,
        );
        let target = format!("/v1/leases/{name}{rest}");
        let json = [("Content-Type", "application/json")];
        self.send(self.leases, method, &target, &json, body.to_string().as_bytes())
    }

    /// `None` where the gateway cannot be asked: it may be suspended.
    fn send(
        &self,
        to: SocketAddr,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Answer> {
        let mut connection = Connection::try_open(to).ok()?;
        connection.0.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        connection.try_exchange(request(method, target, fields, body)).ok()
    }
}
