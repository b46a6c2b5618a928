//! etcd: one member, or a cluster of three, that can be killed, suspended, wiped and restored.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{SOON, free_port};

/// Somebody else may take a port between its being found free and its being used.
const ATTEMPTS: usize = 5;

/// A cluster of one member or several.
#[derive(Debug)]
pub(crate) struct Etcd {
    directory: TempDir,
    flags: Vec<String>,
    scheme: &'static str,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    client: u16,
    peer: u16,
    /// Where the other members are told to reach it: what leads to `peer`, or that itself.
    entrance: u16,
    /// Health and metrics, always without TLS.
    metrics: u16,
    data: PathBuf,
    child: Option<Child>,
}

impl Etcd {
    /// One member, with elections so quick that leases may be as short as one second.
    pub(crate) fn single() -> Etcd {
        Etcd::with_flags(&[])
    }

    /// The same with further flags.
    pub(crate) fn with_flags(flags: &[&str]) -> Etcd {
        let quick = ["--heartbeat-interval=20", "--election-timeout=200"];
        Etcd::launch(1, "http", &[&quick, flags].concat(), |peer| peer)
    }

    /// One member that speaks TLS alone, to clients with a certificate of this CA.
    pub(crate) fn with_tls(ca: &Path, certificate: &Path, key: &Path) -> Etcd {
        let flag = |name: &str, file: &Path| format!("--{name}={}", file.display());
        let flags = [
            flag("trusted-ca-file", ca),
            flag("cert-file", certificate),
            flag("key-file", key),
            "--client-cert-auth".to_owned(),
        ];
        Etcd::launch(1, "https", &flags.each_ref().map(String::as_str), |peer| peer)
    }

    /// Three members.
    pub(crate) fn cluster() -> Etcd {
        Etcd::cluster_behind(|peer| peer)
    }

    /// Three members that reach each other by other ports, which lead to their own.
    pub(crate) fn cluster_behind(entrance_to: impl FnMut(u16) -> u16) -> Etcd {
        Etcd::launch(3, "http", &[], entrance_to)
    }

    fn launch(
        size: usize,
        scheme: &'static str,
        flags: &[&str],
        mut entrance_to: impl FnMut(u16) -> u16,
    ) -> Etcd {
        for _ in 0..ATTEMPTS {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let members = (0..size)
                .map(|nth| {
                    let (client, peer, metrics) = (free_port(), free_port(), free_port());
                    let (entrance, child) = (entrance_to(peer), None);
                    let data = directory.path().join(format!("m{nth}.data"));
                    Member { client, peer, entrance, metrics, data, child }
                })
                .collect();
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let mut etcd = Etcd { directory, flags, scheme, members };
            for nth in 0..size {
                etcd.spawn(nth);
            }
            if (0..size).all(|nth| etcd.becomes_healthy(nth)) {
                return etcd;
            }
        }
        panic!("etcd does not start; is it installed (Debian: etcd-server, etcd-client)?");
    }

    /// `host:port` of each member.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("127.0.0.1:{}", member.client)).collect()
    }

    /// Where scratch files of a test may be.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a member that has ended, if it has, and does not wait until it is well.
    pub(crate) fn tend(&mut self, nth: usize) {
        let child = &mut self.members[nth].child;
        let is_running = child
            .as_mut()
            .is_some_and(|child| child.try_wait().expect("it is our child").is_none());
        if !is_running {
            self.spawn(nth);
        }
    }

    fn spawn(&mut self, nth: usize) {
        let cluster = self.initial_cluster();
        let member = &mut self.members[nth];
        let log = std::fs::File::create(self.directory.path().join(format!("m{nth}.log")));
        let client = format!("{}://127.0.0.1:{}", self.scheme, member.client);
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let entrance = format!("http://127.0.0.1:{}", member.entrance);
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--name", &format!("m{nth}")])
            .arg("--data-dir")
            .arg(&member.data)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &entrance])
            .args(["--initial-cluster", &cluster, "--initial-cluster-token", "test"])
            .args(["--listen-metrics-urls", &format!("http://127.0.0.1:{}", member.metrics)])
            .args(["--logger", "zap", "--log-level", "warn"])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a writable directory"))
            .spawn()
            .expect("setpriv is installed (Debian: util-linux)");
        member.child = Some(child);
    }

    fn initial_cluster(&self) -> String {
        let members = self.members.iter().enumerate();
        let members: Vec<_> = members
            .map(|(nth, member)| format!("m{nth}=http://127.0.0.1:{}", member.entrance))
            .collect();
        members.join(",")
    }

    /// Waits until a member answers requests; `false` if it has ended.
    fn becomes_healthy(&mut self, nth: usize) -> bool {
        let deadline = Instant::now() + SOON;
        while Instant::now() < deadline {
            let child = self.members[nth].child.as_mut().expect("it was started");
            if child.try_wait().expect("it is our child").is_some() {
                return false;
            }
            if self.ask(nth, "/health").contains("\"health\":\"true\"") {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("etcd is not healthy: {}", self.log(nth));
    }

    fn ask(&self, nth: usize, path: &str) -> String {
        let at = SocketAddr::from(([127, 0, 0, 1], self.members[nth].metrics));
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect_timeout(&at, Duration::from_secs(1)) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
            let _ = write!(stream, "GET {path} HTTP/1.0\r\n\r\n");
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    /// What a member tells of itself, in Prometheus' format.
    pub(crate) fn metrics(&self, nth: usize) -> String {
        self.ask(nth, "/metrics")
    }

    pub(crate) fn log(&self, nth: usize) -> String {
        let path = self.directory.path().join(format!("m{nth}.log"));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// Which member leads now.
    pub(crate) fn leader(&self) -> usize {
        let deadline = Instant::now() + SOON;
        loop {
            let leads = |nth: &usize| {
                self.members[*nth].child.is_some()
                    && self.ask(*nth, "/metrics").contains("\netcd_server_is_leader 1")
            };
            if let Some(leader) = (0..self.members.len()).find(leads) {
                return leader;
            }
            assert!(Instant::now() < deadline, "nobody leads");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills a member; what it had confirmed stays on its disk.
    pub(crate) fn kill(&mut self, nth: usize) {
        if let Some(mut child) = self.members[nth].child.take() {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
        }
    }

    /// Starts a member that was killed, and waits until it is well.
    pub(crate) fn start(&mut self, nth: usize) {
        self.spawn(nth);
        assert!(self.becomes_healthy(nth), "etcd ended: {}", self.log(nth));
    }

    /// Starts members that were killed together, and waits until all are well.
    pub(crate) fn start_all(&mut self) {
        let down: Vec<_> =
            (0..self.members.len()).filter(|nth| self.members[*nth].child.is_none()).collect();
        for nth in &down {
            self.spawn(*nth);
        }
        for nth in down {
            assert!(self.becomes_healthy(nth), "etcd ended: {}", self.log(nth));
        }
    }

    /// Lets a member stand still, connections and all, or go on.
    pub(crate) fn signal(&self, nth: usize, signal: Signal) {
        let child = self.members[nth].child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("it is our child");
    }

    /// Starts over with nothing, with the same flags.
    pub(crate) fn wipe(&mut self) {
        self.kill(0);
        std::fs::remove_dir_all(&self.members[0].data).expect("it had data");
        self.start(0);
    }

    /// Saves what is there now.
    pub(crate) fn snapshot(&self) -> PathBuf {
        let file = self.directory.path().join("snapshot");
        self.ctl(&["snapshot", "save", &file.display().to_string()]);
        file
    }

    /// Goes back to a snapshot, as its manual says: the same names, addresses and token.
    pub(crate) fn restore(&mut self, snapshot: &Path) {
        self.kill(0);
        let data = self.members[0].data.clone();
        std::fs::remove_dir_all(&data).expect("it had data");
        let (cluster, peer) = (self.initial_cluster(), self.members[0].peer);
        self.ctl(&[
            "snapshot",
            "restore",
            &snapshot.display().to_string(),
            "--data-dir",
            &data.display().to_string(),
            "--name=m0",
            "--initial-cluster-token=test",
            &format!("--initial-cluster={cluster}"),
            &format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
        ]);
        self.start(0);
    }

    /// Runs `etcdctl`, which must succeed, and answers its output.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.endpoints().join(",")))
            .args(arguments)
            .output()
            .expect("etcdctl is installed (Debian: etcd-client)");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut child) = member.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
