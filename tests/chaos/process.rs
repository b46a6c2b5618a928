//! Processes that end with their owner, and this executable as the API or as a writer.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A part of the test that is a process of its own: this executable, told so by its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Api,
    Writer,
}

impl Part {
    /// Of a process that was started to be one.
    pub fn from_environment() -> Option<Part> {
        match &*std::env::var("CHAOS_PART").ok()? {
            "api" => Some(Part::Api),
            "writer" => Some(Part::Writer),
            other => panic!("no such part: {other}"),
        }
    }

    /// Completes a command, whose last argument is to be a program, by the part.
    pub fn of(self, command: &mut Command, dir: &Path) {
        let part = match self {
            Part::Api => "api",
            Part::Writer => "writer",
        };
        command
            .arg(std::env::current_exe().expect("Linux"))
            .args(["--exact", "part_of_a_chaos_test", "--nocapture"])
            .env("CHAOS_PART", part)
            .env("CHAOS_DIR", dir);
    }
}

/// A process that is killed when dropped.
pub struct Process(Child);

impl Process {
    /// Spawns it, with its standard error in `log`.
    pub fn spawn(command: &mut Command, log: &Path) -> Process {
        // It would read them; what the tests are told is not for it.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"FENCEGATE_") {
                command.env_remove(name);
            }
        }
        let log = File::create(log).expect("a writable directory");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Process(command.spawn().expect("the program is there"))
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("our child")
    }

    /// Signals it unless it has ended.
    pub fn signal(&mut self, signal: Signal) -> bool {
        // Not reaped yet, so its number is its own.
        self.ended().is_none() && kill_process(Pid::from_child(&self.0), signal).is_ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
