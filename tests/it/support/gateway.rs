//! The real `fencegate serve`, in a process of its own.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::http::{Answer, send};
use super::store_file::StoreFile;
use super::wait_until;

/// A gateway that may run, may be killed, and may be started again on the same store.
pub struct Gateway {
    dir: Arc<TempDir>,
    store: PathBuf,
    child: Option<Child>,
    runs: usize,
    pub proxy: SocketAddr,
    pub leases: SocketAddr,
    pub admin: SocketAddr,
}

/// Settings that make a test quick; a test that is about one of them says so itself.
const QUICK: &str = "timeout = \"20s\"\nsettle = \"2s\"\n";

/// Limits that a test can reach quickly.
pub const TIGHT: &str = "[limits]\nhead_timeout = \"400ms\"\nbody_timeout = \"600ms\"\n\
                         head_size = \"16KiB\"\nhead_fields = 20\n";

impl Gateway {
    /// Guards `downstream` with one route for all paths, a settle time of 2 s, a drain of 1 s.
    pub fn guard(downstream: SocketAddr) -> Gateway {
        Gateway::with_route(downstream, "drain = \"1s\"\nwait = \"20s\"\n")
    }

    /// Guards `downstream` with one route for all paths that has these further settings.
    pub fn with_route(downstream: SocketAddr, route: &str) -> Gateway {
        Gateway::with_config(&format!(
            "[[upstream]]\nname = \"api\"\nurl = \"http://{downstream}\"\n{QUICK}\
             [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\n{route}"
        ))
    }

    /// Guards `downstream` like [`Gateway::guard`], but takes any token that is newer, and has
    /// these further tables.
    pub fn ordered(downstream: SocketAddr, tables: &str) -> Gateway {
        Gateway::with_config(&format!(
            "[[upstream]]\nname = \"api\"\nurl = \"http://{downstream}\"\n{QUICK}\
             [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n\
             drain = \"1s\"\nwait = \"20s\"\n{tables}"
        ))
    }

    /// Starts with a configuration that says nothing of listeners and store.
    pub fn with_config(config: &str) -> Gateway {
        Gateway::with_store(None, config)
    }

    /// The same, with its store at a place of the test's choice.
    pub fn with_store(store: Option<PathBuf>, config: &str) -> Gateway {
        let dir = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        let store = store.unwrap_or_else(|| dir.path().join("fencegate.db"));
        let table = format!("url = \"sqlite:{}\"", store.display());
        let mut gateway = Gateway::configured(dir, store, &table, config);
        gateway.start();
        gateway
    }

    /// Guards `downstream` like [`Gateway::ordered`], with these keys of `[listen]` and `[[upstream]]`, and these
    /// further tables. `upstream` begins with the URL's scheme.
    pub fn listening(
        downstream: SocketAddr,
        listen: &str,
        upstream: &str,
        tables: &str,
    ) -> Gateway {
        let (scheme, upstream) = upstream.split_once('\n').unwrap_or((upstream, ""));
        let config = format!(
            "[[upstream]]\nname = \"api\"\nurl = \"{scheme}://{downstream}\"\n{upstream}{QUICK}\
             [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n\
             drain = \"1s\"\nwait = \"20s\"\n{tables}"
        );
        let dir = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        let store = dir.path().join("fencegate.db");
        let table = format!("url = \"sqlite:{}\"", store.display());
        let mut gateway = Gateway::configured(dir, store, &table, &config);
        let path = gateway.dir.path().join("fencegate.toml");
        let text = fs::read_to_string(&path).expect("written just now");
        let text = text.replacen("[listen]\n", &format!("[listen]\n{listen}"), 1);
        fs::write(&path, text).expect("a writable directory");
        gateway.start();
        gateway
    }

    /// One of several on a PostgreSQL server: `store` is the table `[store]`, and leases are at `coordinator`. It
    /// takes any token that is newer on its one route for all paths. Not started yet.
    pub fn one_of_several(downstream: SocketAddr, store: &str, coordinator: &str) -> Gateway {
        Gateway::shared(downstream, store, coordinator, "ordered")
    }

    /// The same for tokens that the coordinator confirms.
    pub fn one_of_several_for_holders(
        downstream: SocketAddr,
        store: &str,
        coordinator: &str,
    ) -> Gateway {
        Gateway::shared(downstream, store, coordinator, "held")
    }

    fn shared(downstream: SocketAddr, store: &str, coordinator: &str, tokens: &str) -> Gateway {
        let dir = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        let config = format!(
            "[[upstream]]\nname = \"api\"\nurl = \"http://{downstream}\"\ntimeout = \"20s\"\n\
             settle = \"1s\"\n[[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\n\
             tokens = \"{tokens}\"\ndrain = \"1s\"\nwait = \"20s\"\n\
             [coordinator]\nurl = \"{coordinator}\"\n"
        );
        Gateway::on_a_server(dir, store, &config)
    }

    /// With the table `[store]` and a configuration of the test's choice. Not started yet.
    #[allow(dead_code, reason = "`tests/watch` shares this file and needs it")]
    pub fn with_tables(store: &str, config: &str) -> Gateway {
        let dir = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        Gateway::on_a_server(dir, store, config)
    }

    fn on_a_server(dir: Arc<TempDir>, store: &str, config: &str) -> Gateway {
        let nowhere = dir.path().join("no.db");
        Gateway::configured(dir, nowhere, store, config)
    }

    fn configured(dir: Arc<TempDir>, store: PathBuf, table: &str, config: &str) -> Gateway {
        fs::write(dir.path().join("fencegate.toml"), whole(table, config))
            .expect("a writable directory");
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        Gateway {
            dir,
            store,
            child: None,
            runs: 0,
            proxy: nowhere,
            leases: nowhere,
            admin: nowhere,
        }
    }

    /// Where its configuration is.
    pub fn config_path(&self) -> PathBuf {
        self.dir.path().join("fencegate.toml")
    }

    /// Puts another configuration into the place of its own, in one step; with the same listeners and store.
    pub fn configure(&self, config: &str) {
        self.configure_listener("", config);
    }

    /// The same with further keys of `[listen]`.
    pub fn configure_listener(&self, listen: &str, config: &str) {
        let table = format!("url = \"sqlite:{}\"", self.store.display());
        let new = self.dir.path().join("new.toml");
        let text = whole(&table, config).replacen("[store]\n", &format!("{listen}[store]\n"), 1);
        fs::write(&new, text).expect("a writable directory");
        fs::rename(new, self.config_path()).expect("a writable directory");
    }

    /// Makes later starts listen where it listens now.
    pub fn keep_ports(&self) {
        let path = self.dir.path().join("fencegate.toml");
        let mut text = fs::read_to_string(&path).expect("written at the start");
        for address in [self.proxy, self.leases, self.admin] {
            text = text.replacen("\"127.0.0.1:0\"", &format!("\"{address}\""), 1);
        }
        fs::write(path, text).expect("a writable directory");
    }

    /// Makes later starts listen on all addresses with the lease and the admin listener.
    pub fn listen_everywhere(&self) {
        let path = self.dir.path().join("fencegate.toml");
        let mut text = fs::read_to_string(&path).expect("written at the start");
        for name in ["leases", "admin"] {
            let here = format!("{name} = \"127.0.0.1:0\"");
            text = text.replacen(&here, &format!("{name} = \"0.0.0.0:0\""), 1);
        }
        fs::write(path, text).expect("a writable directory");
    }

    /// Starts it again on the same store, on new ports unless they are kept.
    pub fn start(&mut self) {
        self.launch();
        wait_until("the gateway listens", || {
            let status = self.child.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = status {
                panic!("the gateway ended with {status}: {}", self.log_text());
            }
            self.log().iter().any(|line| line["message"] == "listening")
        });
        let log = self.log();
        let line = log.iter().find(|line| line["message"] == "listening").expect("seen above");
        let address = |name: &str| line[name].as_str().and_then(|at| at.parse().ok());
        self.proxy = address("proxy").expect("an address");
        self.leases = address("leases").expect("an address");
        self.admin = address("admin").expect("an address");
    }

    fn launch(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        self.runs += 1;
        let log = File::create(self.log_path()).expect("a writable directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencegate"));
        // It would read them; what the tests are told is not for it.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"FENCEGATE_") {
                command.env_remove(name);
            }
        }
        let child = command
            .args(["serve", "--config"])
            .arg(self.dir.path().join("fencegate.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary was built");
        self.child = Some(child);
    }

    /// Its store, to be opened while it does not run.
    pub fn store(&self) -> StoreFile {
        StoreFile::at(&self.store)
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join(format!("log.{}", self.runs))
    }

    pub fn log_text(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The log of this run, line by line. Every line must be JSON; a last one may be half written.
    pub fn log(&self) -> Vec<serde_json::Value> {
        let text = self.log_text();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
            .collect()
    }

    pub fn pid(&self) -> Pid {
        let id = self.child.as_ref().expect("it runs").id();
        Pid::from_raw(i32::try_from(id).expect("a pid")).expect("not zero")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Kills it without a chance to do anything.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.wait().signal(), Some(9));
    }

    /// Asks it to end, and waits until it did.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
            panic!("the gateway had ended already, with {status}: {}", self.log_text());
        }
        self.signal(Signal::TERM);
        self.wait()
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        let mut status = None;
        wait_until("the gateway ends", || {
            status = child.try_wait().expect("our child");
            status.is_some()
        });
        status.expect("waited for it")
    }

    /// A fenced PUT.
    #[track_caller]
    pub fn put(&self, path: &str, token: u64, body: &str) -> Answer {
        send(self.proxy, "PUT", path, &[("Fencing-Token", &token.to_string())], body.as_bytes())
    }

    /// Ends a lease.
    #[track_caller]
    pub fn release(&self, resource: &str, owner: &str, token: u64) -> Answer {
        let query = format!("?owner={owner}&token={token}");
        self.lease_api("DELETE", resource, &query, &serde_json::Value::Null)
    }

    /// Prolongs a lease.
    #[track_caller]
    pub fn renew(&self, resource: &str, owner: &str, token: u64, ttl_ms: u64) -> Answer {
        let body =
            serde_json::json!({"owner": owner, "token": token.to_string(), "ttl_ms": ttl_ms});
        self.lease_api("POST", resource, "/renew", &body)
    }

    /// The owner of the live lease.
    #[track_caller]
    pub fn holder(&self, resource: &str) -> Option<String> {
        let answer = self.lease_api("GET", resource, "", &serde_json::Value::Null);
        (answer.status == 200).then(|| answer.json()["owner"].as_str().expect("a name").to_owned())
    }

    /// Acquires a lease and gives its token.
    #[track_caller]
    pub fn acquire(&self, resource: &str, owner: &str, ttl_ms: u64) -> u64 {
        let answer = self.try_acquire(resource, owner, ttl_ms, 0);
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["token"].as_str().and_then(|token| token.parse().ok()).expect("a token")
    }

    pub fn try_acquire(&self, resource: &str, owner: &str, ttl_ms: u64, wait_ms: u64) -> Answer {
        let body = serde_json::json!({"owner": owner, "ttl_ms": ttl_ms, "wait_ms": wait_ms});
        self.lease_api("POST", resource, "", &body)
    }

    pub fn lease_api(
        &self,
        method: &str,
        resource: &str,
        rest: &str,
        body: &serde_json::Value,
    ) -> Answer {
        let name =
            percent_encoding::utf8_percent_encode(resource, percent_encoding::NON_ALPHANUMERIC);
        let target = format!("/v1/leases/{name}{rest}");
        let json = [("Content-Type", "application/json")];
        send(self.leases, method, &target, &json, body.to_string().as_bytes())
    }

    pub fn admin(&self, target: &str) -> Answer {
        send(self.admin, "GET", target, &[], b"")
    }

    /// How many configurations were `applied`, or `refused`, since the start.
    pub fn config_reloads(&self, result: &str) -> u64 {
        let metrics = self.admin_text("/metrics");
        let name = format!("fencegate_config_reloads_total{{result=\"{result}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{name} is missing"))
    }

    /// What the admin listener says as text.
    pub fn admin_text(&self, target: &str) -> String {
        String::from_utf8_lossy(&self.admin(target).body).into_owned()
    }

    /// The mark of a resource, as the store has it.
    #[track_caller]
    pub fn mark(&self, resource: &str) -> Option<u64> {
        let name =
            percent_encoding::utf8_percent_encode(resource, percent_encoding::NON_ALPHANUMERIC);
        let answer = self.admin(&format!("/v1/fences/{name}"));
        if answer.status == 404 {
            return None;
        }
        answer.json()["highest_token"].as_str().and_then(|token| token.parse().ok())
    }
}

/// A configuration file with listeners on free ports.
fn whole(store: &str, config: &str) -> String {
    let listen = "[listen]\nproxy = \"127.0.0.1:0\"\nleases = \"127.0.0.1:0\"\n\
                  admin = \"127.0.0.1:0\"\n";
    format!("{listen}[store]\n{store}\n{config}")
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
