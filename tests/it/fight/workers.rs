//! Workers: each starts one `fencegate run` after the other, with whatever options chance gives.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::chance::Chance;

pub(super) const TTL: Duration = Duration::from_millis(1500);
pub(super) const FILES: [&str; 3] = ["/a", "/b", "/deep/er/c"];

/// What all workers share.
pub(super) struct Ground {
    /// Where they note what they do. Named in the environment of every process of theirs.
    pub dir: PathBuf,
    /// The lease API.
    pub leases: SocketAddr,
    /// The API's address as workers know it: the slow network in front of it.
    pub api: SocketAddr,
    /// The same without the slow network.
    pub direct: SocketAddr,
    /// The runs that are running, by the name of their job.
    runs: Mutex<BTreeMap<String, Child>>,
    over: AtomicBool,
}

impl Ground {
    pub(super) fn new(
        dir: &Path,
        leases: SocketAddr,
        api: SocketAddr,
        direct: SocketAddr,
    ) -> Ground {
        fs::write(dir.join("job.sh"), include_str!("job.sh")).expect("a writable directory");
        for notes in ["notes", "refusals", "said"] {
            File::create(dir.join(notes)).expect("a writable directory");
        }
        let dir = dir.to_owned();
        let (runs, over) = (Mutex::default(), AtomicBool::new(false));
        Ground { dir, leases, api, direct, runs, over }
    }

    /// Starts one run after the other until the fight is over; how they ended.
    pub(super) fn work(&self, worker: usize, mut chance: Chance) -> BTreeMap<String, usize> {
        let mut ends = BTreeMap::new();
        let mut run = 0;
        while !self.is_over() {
            run += 1;
            let job = format!("w{worker}r{run}");
            let child = self.command(&job, &mut chance).spawn().expect("the binary was built");
            self.runs().insert(job.clone(), child);
            *ends.entry(self.wait(&job).to_string()).or_default() += 1;
        }
        ends
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends the fight, and with it every process of it.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        // Whoever was just being started is seen in the next round.
        while self.runs().values().next().is_some() || !self.processes().is_empty() {
            for process in self.processes() {
                let _ = kill_process(process, Signal::KILL);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Signals a run that is running and whose command has started: the run, its command's process
    /// group, or both. `false`: there is no such run.
    pub(super) fn signal(&self, job: &str, whom: Whom, signal: Signal) -> bool {
        let runs = self.runs();
        // Nobody reaps it while it is looked at, so its number stays its own.
        let Some(run) = runs.get(job) else { return false };
        let Some(command) = self.command_of(job) else { return false };
        if whom != Whom::Run && self.is_ours(command) {
            let _ = rustix::process::kill_process_group(command, signal);
        }
        whom == Whom::Command || kill_process(Pid::from_child(run), signal).is_ok()
    }

    /// Signals the process group of a command even if its run is gone.
    pub(super) fn signal_orphans(&self, job: &str, signal: Signal) {
        if let Some(command) = self.command_of(job).filter(|command| self.is_ours(*command)) {
            let _ = rustix::process::kill_process_group(command, signal);
        }
    }

    /// Jobs whose command has started.
    pub(super) fn jobs(&self) -> Vec<String> {
        let jobs = self.runs().keys().cloned().collect::<Vec<_>>();
        jobs.into_iter().filter(|job| self.command_of(job).is_some()).collect()
    }

    fn runs(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Child>> {
        self.runs.lock().expect("no panic in there")
    }

    fn wait(&self, job: &str) -> ExitStatus {
        loop {
            let mut runs = self.runs();
            let child = runs.get_mut(job).expect("only its own worker removes it");
            if let Some(status) = child.try_wait().expect("our child") {
                runs.remove(job);
                return status;
            }
            drop(runs);
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn command(&self, job: &str, chance: &mut Chance) -> Command {
        let on_held: &[&str] = match chance.below(4) {
            0 => &["--on-held", "skip"],
            1 => &["--on-held", "fail"],
            _ => &["--on-held", "wait", "--wait", "10s"],
        };
        let file = FILES[chance.below(FILES.len())];
        let api = format!("http://{}", self.api);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencegate"));
        command
            .args(["run", "--resource", file, "--owner", job, "--ttl"])
            .arg(format!("{}ms", TTL.as_millis()))
            .args(["--leases", &format!("http://{}", self.leases), "--gateway", &api])
            .args(on_held)
            .args(["--", "sh"])
            .arg(self.dir.join("job.sh"))
            .env("FIGHT_DIR", &self.dir)
            .env("FIGHT_JOB", job)
            .env("FIGHT_FILE", file)
            .env("FIGHT_API", &api)
            .env("FIGHT_DIRECT", format!("http://{}", self.direct))
            .env("FIGHT_ODD", chance.below(5).to_string())
            .env("FIGHT_WRITES", (1 + chance.below(12)).to_string())
            .env("FIGHT_PATIENCE", (1 + chance.below(8)).to_string())
            .env("FIGHT_ROGUE", if chance.one_in(3) { "yes" } else { "no" })
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.note("said"));
        command
    }

    fn note(&self, name: &str) -> File {
        let file = File::options().append(true).open(self.dir.join(name));
        file.expect("made at the start")
    }

    fn command_of(&self, job: &str) -> Option<Pid> {
        let file = fs::read_to_string(self.dir.join(format!("{job}.pid"))).ok()?;
        Pid::from_raw(file.trim().parse().ok()?)
    }

    /// Every process of the fight, daemons of the workers included.
    fn processes(&self) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").expect("Linux").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Pid::from_raw).filter(|pid| self.is_ours(*pid)).collect()
    }

    fn is_ours(&self, process: Pid) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero()));
        let mark = format!("FIGHT_DIR={}", self.dir.display());
        environment.is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == mark.as_bytes()))
    }
}

/// Who is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    /// `fencegate run` alone.
    Run,
    /// The command's process group alone.
    Command,
    Both,
}
