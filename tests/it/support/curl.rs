//! curl, as a user would call it.

use std::process::{Command, Stdio};

use super::command::{Ended, run};

/// The answer's status, the HTTP version that it was spoken with, and the answer's body.
#[derive(Debug)]
pub struct Curled {
    /// 0: there was none.
    pub status: u16,
    pub version: String,
    pub body: String,
}

impl Curled {
    /// The code of a problem document.
    #[track_caller]
    pub fn problem(&self) -> (u16, String, String) {
        let document: serde_json::Value =
            serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"));
        let text = |name: &str| document[name].as_str().expect("a problem has it").to_owned();
        (self.status, text("code"), text("outcome"))
    }
}

/// curl with these arguments, without a configuration of its user's.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["-q", "-sS", "--max-time", "25"]).args(args).stdin(Stdio::null());
    command
}

#[track_caller]
pub fn curl(args: &[&str]) -> Curled {
    let mut command = command(args);
    command.args(["-w", "\n%{http_code} %{http_version}"]);
    read(run(command))
}

fn read(Ended { stdout, .. }: Ended) -> Curled {
    let (body, told) = stdout.rsplit_once('\n').unwrap_or(("", &stdout));
    let (status, version) = told.split_once(' ').unwrap_or(("0", ""));
    Curled {
        status: status.parse().unwrap_or(0),
        version: version.to_owned(),
        body: body.to_owned(),
    }
}
