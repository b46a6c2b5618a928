//! Processes that this benchmark starts, pins, measures and ends.
//!
//! Invariant: whatever is started here is ended when its value is dropped, and by the kernel if
//! this process is killed first. Nothing else is ever signalled.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fencegate::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};

/// How long an end that was asked for may take: longer than a gateway waits for requests in flight.
const STOP_LIMIT: Duration = Duration::from_secs(40);
/// How often a level is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(5);

/// A command that runs on `cores` only and ends with this process.
pub(crate) fn pinned(cores: &str, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "taskset", "-c", cores]).arg(program);
    command
}

/// Runs a command that is expected to end by itself.
pub(crate) fn run_to_end(mut command: Command, limit: Duration) -> Result<Output> {
    let clock = Clock::new();
    let deadline = clock.now() + limit;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("running setpriv and taskset; install util-linux")?;
    while child.try_wait()?.is_none() {
        if clock.now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("did not end within {} s", limit.as_secs());
        }
        std::thread::sleep(LOOK);
    }
    Ok(child.wait_with_output()?)
}

/// A loopback address that was free a moment ago: nginx cannot be asked which port it took.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a server; what it prints goes to `NAME.log` in `directory`.
    pub(crate) fn start(name: &str, mut command: Command, directory: &Path) -> Result<Server> {
        let log = directory.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let child = command
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("running setpriv and taskset; install util-linux")?;
        Ok(Server { name: name.to_owned(), child, log })
    }

    /// Fails if the server ended by itself, with what it said.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        bail!("{} ended ({status}); it said: {}", self.name, self.said())
    }

    /// The end of what the server printed.
    pub(crate) fn said(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(10)..];
        if tail.is_empty() { "nothing".to_owned() } else { tail.join("\n") }
    }

    /// CPU time so far, of all threads of the server and its workers.
    pub(crate) fn cpu(&self) -> Result<CpuTimes> {
        let mut times = CpuTimes::default();
        for pid in self.family()? {
            for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
                let thread = thread?;
                // A thread may end between the listing and the reading.
                let Ok(stat) = fs::read_to_string(thread.path().join("schedstat")) else {
                    continue;
                };
                let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
                let nanos = nanos.context("/proc/PID/schedstat is not as expected")?;
                times.0.insert(thread.path(), nanos);
            }
        }
        Ok(times)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB")?.trim().parse().ok());
        kib.map(|kib: u64| kib * 1024).context("/proc/PID/status has no VmRSS")
    }

    /// The server and its children: nginx serves in a worker, and the master does nothing.
    fn family(&self) -> Result<Vec<u32>> {
        let own = self.child.id();
        let mut family = vec![own];
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // Processes of others come and go.
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            // The name in brackets may hold anything; state and parent follow it.
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
            if parent.and_then(|parent| parent.parse().ok()) == Some(own) {
                family.push(pid);
            }
        }
        Ok(family)
    }

    fn stop(&mut self) -> Result<()> {
        let clock = Clock::new();
        let deadline = clock.now() + STOP_LIMIT;
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        while self.child.try_wait()?.is_none() {
            if clock.now() > deadline {
                eprintln!("{} did not stop within {} s", self.name, STOP_LIMIT.as_secs());
                return self.kill();
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        for pid in self.family()? {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                kill_process(pid, Signal::KILL)?;
            }
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("ending {}: {error:#}", self.name);
        }
    }
}

/// Nanoseconds on a CPU by thread.
#[derive(Debug, Default)]
pub(crate) struct CpuTimes(HashMap<PathBuf, u64>);

impl CpuTimes {
    /// What was used since an earlier reading. A thread that ended in between counts nothing.
    pub(crate) fn since(&self, earlier: &CpuTimes) -> Duration {
        let used = |(thread, nanos): (&PathBuf, &u64)| {
            nanos.saturating_sub(earlier.0.get(thread).copied().unwrap_or(0))
        };
        Duration::from_nanos(self.0.iter().map(used).sum())
    }
}
