//! `fencegate run`

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use super::worker_args::{LeaseSource, duration, owner_of, unique_owner};
use crate::clock::Clock;
use crate::fence::{Owner, Resource};
use crate::worker::{self, Gateway, Job, OnHeld, exit};

/// Below it there is no time to end a command between two renewals.
const TTL_MIN: Duration = Duration::from_millis(500);
/// What the lease API takes at the most.
const TTL_MAX: Duration = Duration::from_secs(3600);
const DEFAULT_WAIT: Duration = Duration::from_secs(3600);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command gets FENCING_TOKEN, FENCING_RESOURCE and FENCING_PROXY, a local HTTP proxy that puts
the token on what is sent through it: curl -x \"$FENCING_PROXY\" http://GATEWAY/PATH

Exit code: the command's (128+N if signal N ended it), or
    0  the lease is held and --on-held skip was given
   64  the command line is wrong
   69  the coordinator does not answer, or refused
   71  the system refused what is needed to watch over a command
   75  the lease is held by another owner
   76  the lease was lost and the command was ended
  126  the command cannot be executed
  127  the command was not found")]
pub(super) struct RunArgs {
    /// What the lease is for, such as job:invoices
    #[arg(long)]
    resource: Resource,
    /// What to do when another owner has the lease
    #[arg(long, value_enum, default_value = "fail")]
    on_held: WhenHeld,
    /// With --on-held wait: for how long at most [default: 1h]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    wait: Option<Duration>,
    /// The lease's time to live; renewed every third of it
    #[arg(long, value_parser = duration, default_value = "10s", value_name = "DURATION")]
    ttl: Duration,
    /// When the lease is lost: between SIGTERM and SIGKILL [default: a fifth of the TTL]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    kill_after: Option<Duration>,
    /// The name to acquire the lease under; no two runs may share one [default: a unique one]
    #[arg(long)]
    owner: Option<Owner>,
    /// What the unique name begins with, such as the name of the credential that it is bound to
    #[arg(long, value_name = "NAME", conflicts_with = "owner")]
    owner_prefix: Option<Owner>,
    #[command(flatten)]
    source: LeaseSource,
    /// Where FENCING_PROXY sends requests that name no host, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    gateway: Option<Gateway>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum WhenHeld {
    /// Exit with 0 without running the command
    Skip,
    /// Wait for it
    Wait,
    /// Exit with 75
    Fail,
}

pub(super) fn main(args: RunArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(run(args));
            // A look-up of a host name may still be under way in a thread of its own.
            runtime.shutdown_background();
            ExitCode::from(code)
        }
        Err(error) => {
            eprintln!("fencegate run: cannot start: {error}");
            ExitCode::from(exit::SYSTEM)
        }
    }
}

async fn run(args: RunArgs) -> u8 {
    match args.job() {
        Ok(job) => worker::run(job, Clock::new()).await,
        Err(mistake) => {
            eprintln!("fencegate run: {mistake}");
            exit::USAGE
        }
    }
}

impl RunArgs {
    fn job(self) -> Result<Job, String> {
        let on_held = match (self.on_held, self.wait) {
            (WhenHeld::Wait, wait) => OnHeld::Wait(wait.unwrap_or(DEFAULT_WAIT)),
            (_, Some(_)) => return Err("--wait is of use only with --on-held wait".to_owned()),
            (WhenHeld::Skip, None) => OnHeld::Skip,
            (WhenHeld::Fail, None) => OnHeld::Fail,
        };
        if self.ttl < TTL_MIN {
            return Err(format!("--ttl is shorter than {} ms", TTL_MIN.as_millis()));
        }
        if self.ttl > TTL_MAX {
            return Err("--ttl is longer than 1h, the most that the lease API takes".to_owned());
        }
        let kill_after = self.kill_after.unwrap_or(self.ttl / 5);
        if kill_after > self.ttl / 3 {
            return Err(format!(
                "--kill-after is longer than a third of --ttl ({} ms), \
                 which leaves no time to renew the lease; raise --ttl",
                (self.ttl / 3).as_millis()
            ));
        }
        let owner = match self.owner_prefix {
            Some(prefix) => owner_of(&prefix)?,
            None => self.owner.unwrap_or_else(unique_owner),
        };
        Ok(Job {
            leases: self.source.leases()?,
            resource: self.resource,
            owner,
            ttl: self.ttl,
            on_held,
            kill_after,
            gateway: self.gateway,
            command: self.command,
        })
    }
}
