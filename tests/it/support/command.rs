//! A run of the binary that ends by itself.

use std::path::Path;
use std::process::{Command, Stdio};

use super::wait_until;

/// How a command ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The binary with these arguments, in `dir`, with no configuration from the environment.
pub fn fencegate(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencegate"));
    command.args(args).current_dir(dir);
    command
}

/// Runs a command to its end.
#[track_caller]
pub fn run(mut command: Command) -> Ended {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program is there");
    let mut is_over = false;
    wait_until("the command ends", || {
        is_over = child.try_wait().expect("our child").is_some();
        is_over
    });
    let output = child.wait_with_output().expect("our child");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
