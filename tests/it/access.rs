//! Who may do what on the lease and admin listeners, and how the gateway proves itself to the API.

mod certificates;
mod commands;
mod https;
mod permissions;
mod places;
mod rotation;
mod upstream;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::gateway::Gateway;
use crate::support::http::{Answer, send};

/// A gateway that knows some people.
pub struct Guarded {
    dir: TempDir,
    pub gateway: Gateway,
}

/// A token that is as long as a real one, and that is to be found wherever it leaks to.
pub fn token_of(name: &str) -> String {
    format!("fgt_secret-of-{name}-{}", "x".repeat(32))
}

pub fn hash_of(name: &str) -> String {
    Sha256::digest(token_of(name)).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An entry of the credentials file.
pub fn entry(name: &str, rest: &str) -> String {
    format!("[[credential]]\nname = \"{name}\"\nsha256 = \"{}\"\n{rest}\n", hash_of(name))
}

/// Somebody who may everything.
pub fn root() -> String {
    entry(
        "root",
        "may = [\"lease.acquire\", \"lease.renew\", \"lease.release\", \"lease.read\", \
         \"admin.read\", \"admin.metrics\", \"admin.raise\", \"admin.adopt\"]\n\
         resources = [\"*\"]\nowners = [\"*\"]",
    )
}

impl Guarded {
    /// In front of `api`, with these credentials, and further keys of `[access]`.
    pub fn start(api: SocketAddr, credentials: &str, keys: &str) -> Guarded {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("credentials.toml");
        fs::write(&file, credentials).expect("a writable directory");
        let gateway = Gateway::ordered(
            api,
            &format!("[access]\ncredentials = \"{}\"\n{keys}", file.display()),
        );
        Guarded { dir, gateway }
    }

    pub fn credentials_file(&self) -> PathBuf {
        self.dir.path().join("credentials.toml")
    }

    /// The file with somebody's token.
    pub fn token_file(&self, name: &str) -> PathBuf {
        let file = self.dir.path().join(format!("{name}.token"));
        fs::write(&file, format!("{}\n", token_of(name))).expect("a writable directory");
        file
    }

    /// Asks the lease listener as `name`.
    pub fn leases(&self, name: &str, method: &str, target: &str, body: &str) -> Answer {
        ask(self.gateway.leases, name, method, target, body)
    }

    /// Asks the admin listener as `name`.
    pub fn admin(&self, name: &str, method: &str, target: &str, body: &str) -> Answer {
        ask(self.gateway.admin, name, method, target, body)
    }

    pub fn acquire(&self, name: &str, resource: &str, owner: &str) -> Answer {
        let body = format!("{{\"owner\":\"{owner}\",\"ttl_ms\":60000}}");
        self.leases(name, "POST", &format!("/v1/leases/{resource}"), &body)
    }

    /// What the store has, by the word of somebody who may see all.
    pub fn state(&self) -> (serde_json::Value, serde_json::Value) {
        let leases = self.leases("root", "GET", "/v1/leases", "");
        let fences = self.admin("root", "GET", "/v1/fences", "");
        assert_eq!((leases.status, fences.status), (200, 200), "{leases:?} {fences:?}");
        (leases.json(), fences.json())
    }

    /// The lines of the audit log.
    pub fn audit(&self) -> Vec<serde_json::Value> {
        self.gateway.log().into_iter().filter(|line| line["message"] == "audit").collect()
    }

    pub fn refusals(&self, listener: &str, reason: &str) -> u64 {
        let text = self.admin("root", "GET", "/metrics", "");
        let text = String::from_utf8(text.body).expect("text");
        let series = format!(
            "fencegate_access_refusals_total{{listener=\"{listener}\",reason=\"{reason}\"}} "
        );
        let value = text.lines().find_map(|line| line.strip_prefix(&series));
        value.expect("it exists from the start").parse().expect("a number")
    }
}

pub fn ask(to: SocketAddr, name: &str, method: &str, target: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {}", token_of(name));
    send(to, method, target, &[("Authorization", &bearer)], body.as_bytes())
}
