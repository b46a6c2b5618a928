//! What README.md tells a reader to type does what it says, for root and for anybody else.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::command::{Ended, run};
use crate::support::http::send;
use crate::support::wait_until;

const README: &str = include_str!("../../README.md");
const SECTION: &str = "## Put it in front of your own API";
/// Where the steps keep everything.
const FILES: &str = "/tmp/fencegate-files";
/// The ports of the steps: API, proxy, leases, admin.
const PORTS: [&str; 4] = ["9000", "8080", "8081", "9090"];
const NOBODY: u32 = 65534;

/// A reader, with a directory and ports of their own.
struct Reader {
    home: TempDir,
    ports: [SocketAddr; 4],
    user: Option<u32>,
    gateway: Option<Child>,
}

impl Reader {
    fn new(user: Option<u32>) -> Reader {
        let home = tempfile::tempdir().expect("a temporary directory");
        // nginx's workers are nobody's if root started it, and /tmp is open to all, too.
        fs::set_permissions(home.path(), Permissions::from_mode(0o777)).expect("ours");
        // What `cargo install` would do; nobody may not look into every target directory.
        let installed = home.path().join("fencegate");
        fs::copy(env!("CARGO_BIN_EXE_fencegate"), installed).expect("the binary was built");
        let sockets = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let ports = sockets.each_ref().map(|socket| socket.local_addr().expect("bound"));
        Reader { home, ports, user, gateway: None }
    }

    fn files(&self) -> PathBuf {
        self.home.path().join("files")
    }

    /// A shell that is about to do one of the steps.
    fn shell(&self, step: &str) -> Command {
        let mut script = step.replace(FILES, &self.files().display().to_string());
        for (port, free) in PORTS.iter().zip(self.ports) {
            script = script.replace(&format!("127.0.0.1:{port}"), &free.to_string());
        }
        let script = script
            .lines()
            .filter(|line| !line.starts_with("cargo install"))
            .map(|line| line.replace("fencegate serve", "exec fencegate serve"))
            .collect::<Vec<_>>()
            .join("\n");
        let mut shell = Command::new("/bin/sh");
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"FENCEGATE_") {
                shell.env_remove(name);
            }
        }
        let [_, proxy, leases, admin] = self.ports.map(|port| port.to_string());
        shell
            .args(["-e", "-c", &script])
            .current_dir(self.home.path())
            .env("PATH", format!("{}:/usr/bin:/bin", self.home.path().display()))
            .env("FENCEGATE_LISTEN__PROXY", proxy)
            .env("FENCEGATE_LISTEN__LEASES", leases)
            .env("FENCEGATE_LISTEN__ADMIN", admin);
        if let Some(user) = self.user {
            shell.uid(user).gid(user);
        }
        shell
    }

    #[track_caller]
    fn does(&self, step: &str) -> Ended {
        let ended = run(self.shell(step));
        assert_eq!(ended.code, Some(0), "{step}\n{ended:?}\n{}", self.nginx_log());
        ended
    }

    fn starts_the_gateway(&mut self, step: &str) {
        let mut shell = self.shell(step);
        let log = fs::File::create(self.home.path().join("log")).expect("a writable directory");
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let gateway = self.gateway.insert(shell.spawn().expect("a shell"));
        wait_until("the gateway listens", || {
            if let Some(status) = gateway.try_wait().expect("our child") {
                let log = fs::read_to_string(self.home.path().join("log"));
                panic!("the gateway ended with {status}: {log:?}");
            }
            self.ports[1..].iter().all(|port| TcpStream::connect(port).is_ok())
        });
    }

    fn nginx(&self) -> Option<Pid> {
        let pid = fs::read_to_string(self.files().join("nginx.pid")).ok()?;
        Pid::from_raw(pid.trim().parse().ok()?)
    }

    fn nginx_log(&self) -> String {
        fs::read_to_string(self.files().join("error.log")).unwrap_or_default()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(gateway) = &mut self.gateway {
            let _ = gateway.kill();
            let _ = gateway.wait();
        }
        if let Some(nginx) = self.nginx() {
            let _ = kill_process(nginx, Signal::TERM);
        }
    }
}

/// The shell blocks of the section, in order.
fn steps() -> Vec<&'static str> {
    let (_, section) = README.split_once(SECTION).expect("the section is there");
    let (section, _) = section.split_once("\n## ").expect("another one follows");
    let blocks = section.split("```sh\n").skip(1);
    blocks.map(|block| block.split_once("```").expect("a block ends").0).collect()
}

/// Follows the steps, and gives what the last requests were answered.
fn follow(user: Option<u32>) {
    let steps = steps();
    let [nginx, gateway, first, second, end] = steps[..] else {
        panic!("five steps, not {}: {steps:?}", steps.len());
    };
    let mut reader = Reader::new(user);
    reader.does(nginx);
    wait_until("nginx listens", || TcpStream::connect(reader.ports[0]).is_ok());
    reader.starts_the_gateway(gateway);

    let first = reader.does(first);
    assert!(first.stdout.contains(r#""owner":"a","token":"1""#), "{first:?}");
    let file = reader.files().join("www/reports/may");
    assert_eq!(fs::read(&file).ok().as_deref(), Some(&b"by a"[..]), "{first:?}");
    wait_until("a's lease is over", || {
        send(reader.ports[2], "GET", "/v1/leases/%2Freports%2Fmay", &[], b"").status == 404
    });

    let second = reader.does(second);
    assert!(second.stdout.contains(r#""owner":"b","token":"2""#), "{second:?}");
    for part in [
        r#""status":412"#,
        r#""code":"stale_fencing_token""#,
        r#""outcome":"not_forwarded""#,
        r#""presented_token":"1","highest_token":"2""#,
    ] {
        assert!(second.stdout.contains(part), "no {part} in {second:?}");
    }
    assert!(second.stdout.trim_end().ends_with("by b"), "{second:?}");
    assert_eq!(fs::read(&file).ok().as_deref(), Some(&b"by b"[..]));

    reader.does(end);
    assert!(!reader.files().exists(), "all is removed");
    wait_until("nginx ends", || TcpStream::connect(reader.ports[0]).is_err());
}

#[test]
fn its_steps_work_for_whoever_runs_the_tests() {
    follow(None);
}

#[test]
fn its_steps_work_for_a_user_without_rights() {
    if rustix::process::geteuid().is_root() {
        follow(Some(NOBODY));
    }
}
