//! That a mark is on the disk before the first byte of its write goes upstream. A kill does not
//! show it, as the kernel keeps what a killed process wrote; the order of its system calls does.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::wait_until;

const CALLS: &str = "trace=fsync,fdatasync,read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg";

/// strace, attached to all threads of a gateway.
struct Trace {
    strace: Child,
    log: PathBuf,
}

/// A system call, from the line in which it begins to the line in which it ends.
#[derive(Debug)]
struct Call {
    name: String,
    text: String,
    lines: Range<usize>,
}

impl Trace {
    fn attach(gateway: &Gateway, dir: &Path) -> Trace {
        let log = dir.join("strace.log");
        let pid = gateway.pid().as_raw_nonzero();
        let mut strace = Command::new("strace")
            .args(["-f", "-yy", "-s", "4096", "-e", CALLS, "-o"])
            .arg(&log)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join("strace.err")).expect("a writable directory"))
            .spawn()
            .expect("strace is installed (apt-get install strace)");
        wait_until("strace is attached to every thread", || {
            if let Ok(Some(status)) = strace.try_wait() {
                let why = fs::read_to_string(dir.join("strace.err")).unwrap_or_default();
                panic!("strace ended with {status}: {why}");
            }
            let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
            threads.map(|thread| thread.path().join("status")).all(|status| {
                let status = fs::read_to_string(status).unwrap_or_default();
                let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
                tracer.is_some_and(|tracer| tracer.trim() == strace.id().to_string())
            })
        });
        Trace { strace, log }
    }

    /// What the gateway did until it ended.
    fn calls(mut self) -> Vec<Call> {
        wait_until("strace ends", || matches!(self.strace.try_wait(), Ok(Some(_))));
        let log = fs::read(&self.log).expect("strace wrote it");
        parse(&String::from_utf8_lossy(&log))
    }
}

impl Call {
    fn is_receipt_of(&self, line: &str) -> bool {
        ["read", "readv", "recvfrom", "recvmsg"].contains(&&*self.name) && self.text.contains(line)
    }

    fn is_send_to(&self, peer: SocketAddr) -> bool {
        ["write", "writev", "sendto", "sendmsg"].contains(&&*self.name)
            && self.text.contains(&format!("->{peer}]"))
    }

    fn is_sync_of_the_log(&self) -> bool {
        ["fsync", "fdatasync"].contains(&&*self.name)
            && self.text.contains("fencegate.db-wal>")
            && self.text.ends_with("= 0")
    }
}

/// Joins what strace had to tear apart because another thread came between.
fn parse(log: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut begun: HashMap<&str, (usize, String)> = HashMap::new();
    for (number, line) in log.lines().enumerate() {
        let Some((thread, text)) = line.split_once(' ') else { continue };
        let text = text.trim();
        if let Some(head) = text.strip_suffix("<unfinished ...>") {
            begun.insert(thread, (number, head.trim_end().to_owned()));
            continue;
        }
        let (begins, text) =
            match text.strip_prefix("<... ").and_then(|t| t.split_once(" resumed>")) {
                // The call that was under way when strace came has no beginning.
                Some((name, tail)) => begun
                    .remove(thread)
                    .map_or((0, format!("{name}({tail}")), |(at, head)| (at, head + tail)),
                None => (number, text.to_owned()),
            };
        if let Some((name, _)) = text.split_once('(') {
            calls.push(Call { name: name.to_owned(), text, lines: begins..number });
        }
    }
    calls
}

/// The lines from the receipt of the write with this body to its sending.
#[track_caller]
fn way_through(calls: &[Call], api: SocketAddr, body: &str) -> Range<usize> {
    let receipt = calls.iter().find(|call| call.is_receipt_of(body));
    let receipt = receipt.unwrap_or_else(|| panic!("no receipt of {body} in {calls:#?}"));
    let is_next = |call: &&Call| call.is_send_to(api) && call.lines.start > receipt.lines.end;
    let sent = calls.iter().filter(is_next).min_by_key(|call| call.lines.start);
    receipt.lines.end..sent.unwrap_or_else(|| panic!("{body} not sent in {calls:#?}")).lines.start
}

#[test]
fn a_mark_is_synced_before_the_first_byte_goes_upstream_and_a_grant_spares_the_next_sync() {
    let api = Downstream::start();
    let mut gateway = Gateway::ordered(api.address, "");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let trace = Trace::attach(&gateway, dir.path());
    assert_eq!(gateway.put("/x", 1, "first-of-1").status, 200);
    assert_eq!(gateway.put("/x", 1, "second-of-1").status, 200);
    assert_eq!(gateway.put("/x", 2, "first-of-2").status, 200);
    assert!(gateway.stop().success());

    let calls = trace.calls();

    for (body, is_synced) in [("first-of-1", true), ("second-of-1", false), ("first-of-2", true)] {
        let way = way_through(&calls, api.address, body);
        let is_on_it = |call: &&Call| way.start < call.lines.start && call.lines.end < way.end;
        let synced = calls.iter().filter(|call| call.is_sync_of_the_log()).find(is_on_it);
        assert_eq!(synced.is_some(), is_synced, "{body}, {way:?}: {synced:?} in {calls:#?}");
    }
    assert_eq!(api.tokens("/x"), [1, 1, 2]);
}

#[test]
fn calls_that_were_torn_apart_are_joined() {
    let log = "7  <... read resumed>\"x\", 1) = 1\n\
               7  fdatasync(9</f.db-wal> <unfinished ...>\n\
               8  write(3<TCP:[a->b]>, \"PUT\", 3) = 3\n\
               7  <... fdatasync resumed>) = 0\n\
               8  +++ exited with 0 +++\n";
    let calls = parse(log);
    let seen: Vec<_> = calls.iter().map(|call| (&*call.name, call.lines.clone())).collect();
    assert_eq!(seen, [("read", 0..0), ("write", 2..2), ("fdatasync", 1..3)]);
    assert_eq!(calls[2].text, "fdatasync(9</f.db-wal>) = 0");
}
