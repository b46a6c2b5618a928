//! The command line: what each verb takes, and its exit code.

mod admin;
mod client_args;
mod config_check;
mod coordinator;
mod credential;
mod demo;
mod etcd_args;
mod fence;
mod lease;
mod migrate;
mod run;
mod serve;
mod worker_args;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::worker::exit;

/// A reverse proxy that lets no stale worker write to your API.
#[derive(Debug, Parser)]
#[command(name = "fencegate", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a lost update, then the same run with Fencegate in front of the API
    Demo(demo::DemoArgs),
    /// Run the gateway
    Serve(serve::ServeArgs),
    /// Run a command under a lease
    Run(run::RunArgs),
    /// Work with leases
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Look at fences, and raise them
    #[command(subcommand)]
    Fence(fence::FenceCommand),
    /// Look at the coordinator's history, and adopt another one
    #[command(subcommand)]
    Coordinator(coordinator::CoordinatorCommand),
    /// Make credentials for the lease and admin listeners
    #[command(subcommand)]
    Credential(credential::CredentialCommand),
    /// Bring the schema of the store up to date
    Migrate(migrate::MigrateArgs),
    /// Look at the configuration
    #[command(subcommand)]
    Config(config_check::ConfigCommand),
}

/// Runs what the command line says.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to do if standard error is closed.
            let _ = error.print();
            // Not clap's 2: `run` passes the exit code of a command on, which is often 2.
            return if error.use_stderr() { exit::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    match cli.command {
        Command::Demo(args) => demo::main(&args),
        Command::Serve(args) => serve::main(&args),
        Command::Run(args) => run::main(args),
        Command::Lease(command) => lease::main(&command),
        Command::Fence(command) => fence::main(&command),
        Command::Coordinator(command) => coordinator::main(&command),
        Command::Credential(command) => credential::main(&command),
        Command::Migrate(args) => migrate::main(&args),
        Command::Config(command) => config_check::main(&command),
    }
}
