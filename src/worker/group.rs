//! A command in a process group of its own, so that it can be ended with all its children.
//!
//! Invariant: the group's number is not given to anybody else while it is signalled, because the
//! leader is reaped last. Deliberately absent: processes that left the group (`setsid`, a shell's
//! job control); the gateway's fence is what holds those.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::sync::watch;

use crate::clock::Clock;

/// How long a killed process may take to be gone; one in an uninterruptible system call can take
/// for ever.
const DYING_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) struct Group {
    leader: Child,
    id: Pid,
    has_exited: watch::Receiver<bool>,
}

impl Group {
    /// Starts the command.
    pub(super) fn spawn(command: &mut Command) -> io::Result<Group> {
        let mut leader = command.process_group(0).spawn()?;
        let id = Pid::from_child(&leader);
        let (exited, has_exited) = watch::channel(false);
        let waiter = std::thread::Builder::new().spawn(move || {
            wait_without_reaping(id);
            exited.send_replace(true);
        });
        if let Err(error) = waiter {
            let _ = rustix::process::kill_process_group(id, Signal::KILL);
            leader.wait()?;
            return Err(error);
        }
        Ok(Group { leader, id, has_exited })
    }

    /// Sends a signal to the whole group.
    pub(super) fn signal(&self, signal: Signal) {
        // Fails only if nobody is left, or all who are left changed their user: both are past
        // mending here.
        let _ = rustix::process::kill_process_group(self.id, signal);
        if signal == Signal::KILL {
            // The leader may have moved to another group.
            let _ = rustix::process::kill_process(self.id, signal);
        }
    }

    /// Waits until the leader has exited. It is not reaped yet.
    pub(super) async fn exited(&self) {
        // The thread that waits always sends before it ends.
        let _ = self.has_exited.clone().wait_for(|has_exited| *has_exited).await;
    }

    /// Kills whatever is left of the group and waits until it is gone. `None`: something in it
    /// does not die.
    pub(super) async fn end(mut self, clock: Clock) -> io::Result<Option<ExitStatus>> {
        let give_up = clock.now() + DYING_MAX;
        self.signal(Signal::KILL);
        tokio::select! {
            () = self.exited() => {}
            () = clock.sleep_until(give_up) => return Ok(None),
        }
        while has_live_members(self.id) {
            if give_up <= clock.now() {
                return Ok(None);
            }
            clock.sleep_until(clock.now() + LOOK_EVERY).await;
        }
        self.leader.wait().map(Some)
    }
}

/// tokio's own child would reap the leader, and free the group's number, before the rest of the
/// group is killed.
fn wait_without_reaping(leader: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(leader), options), Err(rustix::io::Errno::INTR)) {}
}

/// Whether a process of the group is left that is not a zombie. A signal cannot tell: zombies take
/// signals too, and in a container nobody may ever reap them.
fn has_live_members(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let group = group.as_raw_nonzero().get();
    processes.flatten().any(|process| {
        let name = process.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
            && std::fs::read(process.path().join("stat"))
                .is_ok_and(|stat| live_member(&stat, group))
    })
}

/// Reads `/proc/PID/stat`: `PID (NAME) STATE PPID PGRP …`, with the number of threads in field 20.
/// The name may hold anything, so fields count from its closing parenthesis.
fn live_member(stat: &[u8], group: i32) -> bool {
    let Some(name_end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let fields = String::from_utf8_lossy(&stat[name_end + 1..]);
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<i32>().ok());
    let is_dead = matches!(fields.first(), Some(&("Z" | "X")));
    // A process whose main thread has exited looks like a zombie while other threads go on.
    number(2) == Some(group) && !(is_dead && number(17).unwrap_or(0) <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_living_processes_of_the_group_count() {
        let stat = |name: &str, state: &str, group: i32, threads: i32| {
            format!("7 ({name}) {state} 1 {group} 5 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 99 0")
        };
        assert!(live_member(stat("sh", "S", 5, 1).as_bytes(), 5));
        assert!(live_member(stat("a) Z 1 6 (b", "R", 5, 1).as_bytes(), 5));
        assert!(live_member(stat("sh", "Z", 5, 2).as_bytes(), 5));
        assert!(!live_member(stat("sh", "Z", 5, 1).as_bytes(), 5));
        assert!(!live_member(stat("sh", "S", 6, 1).as_bytes(), 5));
        assert!(!live_member(b"", 5));
    }
}
