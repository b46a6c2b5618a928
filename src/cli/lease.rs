//! `fencegate lease`: leases by hand. JSON goes to standard output, an error in one line to
//! standard error.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::worker_args::{LeaseSource, duration, unique_owner};
use crate::fence::{Owner, Resource, Token};
use crate::worker::{LeaseError, Leases, exit};

const NOBODY: u8 = 1;

#[derive(Debug, clap::Subcommand)]
pub(super) enum LeaseCommand {
    /// Acquire a lease; exits with 75 if another owner has it
    Acquire {
        #[command(flatten)]
        source: LeaseSource,
        /// What the lease is for
        #[arg(long)]
        resource: Resource,
        /// Who acquires it [default: a unique name, to be found in the output]
        #[arg(long)]
        owner: Option<Owner>,
        /// Its time to live
        #[arg(long, value_parser = duration, default_value = "10s", value_name = "DURATION")]
        ttl: Duration,
        /// How long to wait for another holder to let go
        #[arg(long, value_parser = duration, default_value = "0s", value_name = "DURATION")]
        wait: Duration,
    },
    /// Prolong a lease; exits with 76 if it is lost
    Renew {
        #[command(flatten)]
        held: Held,
        /// Its time to live from now on [default: as before]
        #[arg(long, value_parser = duration, value_name = "DURATION")]
        ttl: Option<Duration>,
    },
    /// End a lease; exits with 76 if it is not (any more) this owner's
    Release {
        #[command(flatten)]
        held: Held,
    },
    /// Show who has the lease; exits with 1 if nobody has
    Show {
        #[command(flatten)]
        source: LeaseSource,
        /// What the lease is for
        #[arg(long)]
        resource: Resource,
    },
    /// List live leases in the order of their resources
    List {
        #[command(flatten)]
        source: LeaseSource,
        /// Begin behind this resource: the `next` of the page before
        #[arg(long, value_name = "RESOURCE")]
        after: Option<Resource>,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Held {
    #[command(flatten)]
    source: LeaseSource,
    /// What the lease is for
    #[arg(long)]
    resource: Resource,
    /// Who has it
    #[arg(long)]
    owner: Owner,
    /// Its fencing token
    #[arg(long)]
    token: Token,
}

enum Failure {
    Usage(String),
    System(std::io::Error),
    Lease(LeaseError),
}

pub(super) fn main(command: &LeaseCommand) -> ExitCode {
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::System)
        .and_then(|runtime| {
            let done = runtime.block_on(execute(command));
            runtime.shutdown_background();
            done
        })
        .and_then(|answer| writeln!(std::io::stdout(), "{answer:#}").map_err(Failure::System));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string().replace(char::is_control, " ");
            eprintln!("fencegate lease: {text}");
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn execute(command: &LeaseCommand) -> Result<Value, Failure> {
    let answer = match command {
        LeaseCommand::Acquire { source, resource, owner, ttl, wait } => {
            let owner = owner.clone().unwrap_or_else(unique_owner);
            json!(leases(source)?.acquire(resource, &owner, *ttl, *wait).await?)
        }
        LeaseCommand::Renew { held: Held { source, resource, owner, token }, ttl } => {
            json!(leases(source)?.renew(resource, owner, *token, *ttl).await?)
        }
        LeaseCommand::Release { held: Held { source, resource, owner, token } } => {
            leases(source)?.release(resource, owner, *token).await?;
            json!({ "resource": resource, "owner": owner, "token": token, "released": true })
        }
        LeaseCommand::Show { source, resource } => json!(leases(source)?.show(resource).await?),
        LeaseCommand::List { source, after, limit } => {
            json!(leases(source)?.list(after.as_ref(), *limit).await?)
        }
    };
    Ok(answer)
}

fn leases(source: &LeaseSource) -> Result<Leases, Failure> {
    source.leases().map_err(Failure::Usage)
}

impl From<LeaseError> for Failure {
    fn from(error: LeaseError) -> Failure {
        Failure::Lease(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(mistake) => f.write_str(mistake),
            Failure::System(error) => error.fmt(f),
            Failure::Lease(error) => write!(f, "{}: {error}", error.code()),
        }
    }
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => exit::USAGE,
            Failure::System(_) => exit::SYSTEM,
            Failure::Lease(LeaseError::Held { .. }) => exit::HELD,
            Failure::Lease(LeaseError::Lost { .. } | LeaseError::OwnerMismatch { .. }) => {
                exit::LOST
            }
            Failure::Lease(LeaseError::NotFound { .. }) => NOBODY,
            Failure::Lease(LeaseError::Unreachable { .. } | LeaseError::Refused { .. }) => {
                exit::UNAVAILABLE
            }
        }
    }
}
