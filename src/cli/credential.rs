//! `fencegate credential`: tokens for the lease and admin listeners.
//!
//! Invariant: a token is printed or written once, and is nowhere else; what goes into the gateway's
//! file is its hash.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::access::{Credentials, TokenHash, new_token};
use crate::worker::exit;

#[derive(Debug, clap::Subcommand)]
pub(super) enum CredentialCommand {
    /// Make a token, and the entry that makes the gateway know it
    ///
    /// The entry belongs into the file that access.credentials names; the token to whoever is to have
    /// it. Without --token-file both are printed, the token first.
    New(NewArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct NewArgs {
    /// Who is to have it; the audit log calls it so
    #[arg(long)]
    name: String,
    /// What it may do: lease.acquire, lease.renew, lease.release, lease.read, admin.read,
    /// admin.metrics, admin.raise, admin.adopt
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "lease.acquire,lease.renew,lease.release",
        value_name = "VERB,…"
    )]
    may: Vec<String>,
    /// To which resources: names, or beginnings of names with * behind them; may be repeated
    #[arg(long = "resource", value_name = "PATTERN")]
    resources: Vec<String>,
    /// As which owners, in the same way [default: the name, and what begins with the name and a colon]
    #[arg(long = "owner", value_name = "PATTERN")]
    owners: Vec<String>,
    /// Write the token into this new file, which only its user can read, and print the entry alone
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(super) fn main(command: &CredentialCommand) -> ExitCode {
    let CredentialCommand::New(args) = command;
    match args.make() {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, why)) => {
            eprintln!("fencegate credential: {}", why.replace(char::is_control, " "));
            ExitCode::from(code)
        }
    }
}

impl NewArgs {
    fn make(&self) -> Result<(), (u8, String)> {
        let token = new_token().map_err(|error| (exit::SYSTEM, error.to_string()))?;
        let entry = self.entry(&token);
        Credentials::parse(&entry).map_err(|mistakes| (exit::USAGE, told(&mistakes)))?;
        let text = match &self.token_file {
            Some(path) => {
                write_new(path, &token).map_err(|error| {
                    (exit::SYSTEM, format!("{path:?} cannot be written: {error}"))
                })?;
                entry
            }
            None => format!("{token}\n\n{entry}"),
        };
        let mut output = std::io::stdout();
        output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush())
            .map_err(|error| (exit::SYSTEM, error.to_string()))
    }

    fn entry(&self, token: &str) -> String {
        let hash = TokenHash::of(token.as_bytes());
        let mut entry = "[[credential]]\n".to_owned();
        let mut line = |key: &str, value: toml_edit::Value| {
            writeln!(entry, "{key} = {value}").expect("a String takes all");
        };
        line("name", self.name.as_str().into());
        line("sha256", hash.to_string().into());
        line("may", self.may.iter().collect());
        for (key, patterns) in [("resources", &self.resources), ("owners", &self.owners)] {
            if !patterns.is_empty() {
                line(key, patterns.iter().collect());
            }
        }
        entry
    }
}

/// Without the lines, which are of a text that nobody has seen.
fn told(mistakes: &[String]) -> String {
    let bare = mistakes.iter().map(|told| told.split_once(": ").map_or(&**told, |(_, what)| what));
    bare.collect::<Vec<_>>().join("; ")
}

/// Never over another one, which may be in use.
fn write_new(path: &Path, token: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{token}")?;
    file.sync_all()
}
