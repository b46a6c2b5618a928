//! A child process that reports on a pipe, can be suspended, and never outlives the demo.
//!
//! Two ways lead there. Dropping a [`Process`] kills it and waits until it is gone, so that what it
//! used can be removed after it. If the demo itself is killed, the system kills the children
//! ([`end_with`]); one that is suspended could not notice by itself.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::PATIENCE;

/// Between two looks at something that cannot be waited for.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// Where a child reports.
#[derive(Clone, Copy)]
pub(super) enum Reports {
    OnStdout,
    OnStderr,
}

pub(super) struct Process {
    name: String,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<pipe::Receiver>>,
}

impl Process {
    /// Starts this binary again as one `part` of the demo.
    pub(super) fn start(
        name: &str,
        part: &str,
        args: &[impl AsRef<OsStr>],
        reports: Reports,
    ) -> anyhow::Result<Process> {
        let mut command = Command::new(std::env::current_exe().context("this binary is gone")?);
        command.arg("demo").arg(part).arg(std::process::id().to_string()).args(args);
        // A configuration that is meant for a real gateway must not change the demo's.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("FENCEGATE_") {
                command.env_remove(variable);
            }
        }
        // Ctrl-C reaches the demo alone, which then ends the others.
        command.process_group(0).stdin(Stdio::piped());
        match reports {
            Reports::OnStdout => command.stdout(Stdio::piped()),
            Reports::OnStderr => command.stdout(Stdio::null()).stderr(Stdio::piped()),
        };
        let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        let output = match reports {
            Reports::OnStdout => child.stdout.take().map(OwnedFd::from),
            Reports::OnStderr => child.stderr.take().map(OwnedFd::from),
        };
        let (input, output) = child.stdin.take().zip(output).context("a pipe is missing")?;
        let lines = BufReader::new(pipe::Receiver::from_owned_fd(output)?).lines();
        Ok(Process { name: name.to_owned(), child, input, lines })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its reports; `None` when there are no more.
    pub(super) async fn line(&mut self) -> anyhow::Result<Option<String>> {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.with_context(|| format!("{} did not report in time", self.name))?;
        line.with_context(|| format!("{} cannot be listened to", self.name))
    }

    /// Sends it a line.
    pub(super) fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.input, "{line}").with_context(|| format!("{} does not listen", self.name))
    }

    /// Suspends it, and waits until it is.
    pub(super) async fn suspend(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        let suspended = async {
            while !self.is_suspended()? {
                tokio::time::sleep(LOOK).await;
            }
            anyhow::Ok(())
        };
        match timeout(PATIENCE, suspended).await {
            Ok(suspended) => suspended,
            Err(_) => bail!("{} was not suspended by SIGSTOP", self.name),
        }
    }

    /// Lets it go on.
    pub(super) fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Whether the system says that it is suspended.
    pub(super) fn is_suspended(&self) -> anyhow::Result<bool> {
        let path = format!("/proc/{}/stat", self.id());
        let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        // "ID (NAME) STATE …", and the name may have parentheses of its own.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        Ok(state == Some('T'))
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        // It has not been waited for, so that its id cannot be another process's by now.
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("{} cannot be signalled", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // They fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Called in a child: binds its life to the demo's, more exactly to the thread that started it,
/// which is the demo's only one.
pub(super) fn end_with(demo: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    // The demo may have been killed before the line above.
    if getppid() != Pid::from_raw(demo) {
        bail!("the demo that started this process is over");
    }
    Ok(())
}
