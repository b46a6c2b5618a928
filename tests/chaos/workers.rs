//! Workers: each starts one `fencegate run` after the other, on whatever resource and by whatever gateway
//! chance gives.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::SOON;
use super::chance::Chance;
use super::gateway::Gateway;
use super::plan::Whom;
use super::process::Part;

/// Of a worker's lease.
pub const TTL: Duration = Duration::from_millis(2000);

/// What all workers share.
pub struct Workers {
    dir: PathBuf,
    resources: usize,
    /// Where each gateway takes writes.
    gateways: Vec<SocketAddr>,
    /// Where each gateway takes requests for leases.
    leases: Vec<SocketAddr>,
    /// The run of each worker, and the name of its job.
    runs: Mutex<BTreeMap<usize, (String, Child)>>,
    over: AtomicBool,
}

impl Workers {
    /// None of them works yet.
    pub fn new(dir: &Path, resources: usize, gateways: &[Gateway]) -> Workers {
        let (runs, over) = (Mutex::default(), AtomicBool::new(false));
        let leases = gateways.iter().map(|gateway| gateway.leases.address).collect();
        let gateways = gateways.iter().map(|gateway| gateway.proxy.address).collect();
        Workers { dir: dir.to_owned(), resources, gateways, leases, runs, over }
    }

    /// Starts one run after the other until it is over; how they ended.
    pub fn work(&self, worker: usize, mut chance: Chance) -> BTreeMap<String, usize> {
        let mut ends = BTreeMap::new();
        for run in 1.. {
            let job = format!("w{worker}r{run}");
            let mut command = self.command(&job, &mut chance);
            {
                let mut runs = self.runs();
                // Asked under the lock, so that none starts after the end has looked.
                if self.is_over() {
                    break;
                }
                let child = command.spawn().expect("the binary was built");
                runs.insert(worker, (job, child));
            }
            *ends.entry(self.wait(worker)).or_default() += 1;
            thread::sleep(Duration::from_millis(300).mul_f64(chance.fraction()));
        }
        ends
    }

    /// Ends every process of theirs.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        let give_up = Instant::now() + SOON;
        let is_left = || !self.runs().is_empty() || !self.processes().is_empty();
        while is_left() && Instant::now() < give_up {
            for process in self.processes() {
                let _ = kill_process(process, Signal::KILL);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Signals a worker: its run, the command's process group, or both. It is the one of that number among
    /// those whose command has started, counted round and round. `None`: none has; else its job.
    pub fn strike(&self, number: usize, whom: Whom, signal: Signal) -> Option<String> {
        let runs = self.runs();
        // Nobody reaps them while they are looked at, so their numbers stay their own.
        let at_work =
            runs.values().filter_map(|(job, run)| Some((job, run, self.command_of(job)?)));
        let at_work: Vec<_> = at_work.collect();
        let (job, run, command) = *at_work.get(number.checked_rem(at_work.len())?)?;
        if whom != Whom::Run {
            let _ = kill_process_group(command, signal);
        }
        if whom != Whom::Command {
            kill_process(Pid::from_child(run), signal).ok()?;
        }
        Some(job.clone())
    }

    /// Lets a job go on that was suspended. The command first: it may write for a moment before its run
    /// wakes and ends it.
    pub fn wake(&self, job: &str) {
        if let Some(command) = self.command_of(job) {
            let _ = kill_process_group(command, Signal::CONT);
        }
        if let Some((_, run)) = self.runs().values().find(|(running, _)| running == job) {
            let _ = kill_process(Pid::from_child(run), Signal::CONT);
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<usize, (String, Child)>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, worker: usize) -> String {
        loop {
            let mut runs = self.runs();
            let (_, child) = runs.get_mut(&worker).expect("only its own thread removes it");
            if let Some(status) = child.try_wait().expect("our child") {
                runs.remove(&worker);
                return status.to_string();
            }
            drop(runs);
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn command(&self, job: &str, chance: &mut Chance) -> Command {
        let on_held: &[&str] = match chance.below(5) {
            0 => &["--on-held", "skip"],
            1 => &["--on-held", "fail"],
            _ => &["--on-held", "wait", "--wait", "10s"],
        };
        let url = |all: &[SocketAddr], chance: &mut Chance| {
            format!("http://{}", all[chance.below(all.len())])
        };
        let gateways: Vec<_> = self.gateways.iter().map(SocketAddr::to_string).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencegate"));
        command
            .args(["run", "--resource", &format!("/r{}", chance.below(self.resources))])
            .args(["--owner", job, "--ttl", &format!("{}ms", TTL.as_millis())])
            .args(["--leases", &url(&self.leases, chance)])
            .args(["--gateway", &url(&self.gateways, chance)])
            .args(on_held)
            .arg("--");
        Part::Writer.of(&mut command, &self.dir);
        let said = File::options().create(true).append(true).open(self.dir.join("workers.log"));
        command
            .env("CHAOS_JOB", job)
            .env("CHAOS_GATEWAYS", gateways.join(","))
            .env("CHAOS_SEED", chance.below(1 << 30).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.expect("a writable directory"));
        command
    }

    /// The process group of a job's command, which may outlive its run.
    fn command_of(&self, job: &str) -> Option<Pid> {
        let file = fs::read_to_string(self.dir.join(format!("{job}.pid"))).ok()?;
        Pid::from_raw(file.trim().parse().ok()?).filter(|command| self.is_ours(*command))
    }

    /// Every process of every worker.
    fn processes(&self) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").expect("Linux").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Pid::from_raw).filter(|pid| self.is_ours(*pid)).collect()
    }

    fn is_ours(&self, process: Pid) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero()));
        let dir = format!("CHAOS_DIR={}", self.dir.display());
        let has = |all: &[u8], variable: &str| {
            all.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
        };
        environment.is_ok_and(|all| has(&all, &dir) && has(&all, "CHAOS_PART=writer"))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}
