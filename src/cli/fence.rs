//! `fencegate fence`: the fences of a running gateway, through its admin listener.

use std::process::ExitCode;

use crate::fence::{Resource, Token};

/// The exit code when the gateway cannot be reached or refuses.
const UNAVAILABLE: u8 = 69;

#[derive(Debug, clap::Subcommand)]
pub(super) enum FenceCommand {
    /// Print fences as JSON, one page
    List {
        /// Only resources after this one
        #[arg(long, value_name = "RESOURCE")]
        after: Option<Resource>,
        /// Rows at the most
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        admin: AdminAddress,
    },
    /// Print one fence as JSON
    Show {
        /// Whose fence
        #[arg(long)]
        resource: Resource,
        #[command(flatten)]
        admin: AdminAddress,
    },
    /// Raise a mark, so that every lower token is refused from now on
    ///
    /// It admits nobody: the token itself still has to be confirmed as the holder's. A mark is never
    /// lowered again.
    Raise {
        /// Whose fence
        #[arg(long)]
        resource: Resource,
        /// The new mark
        #[arg(long)]
        token: Token,
        #[command(flatten)]
        admin: AdminAddress,
    },
    /// Print writes whose outcome is unknown as JSON
    InDoubt {
        /// Rows at the most
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        admin: AdminAddress,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct AdminAddress {
    /// The gateway's admin listener
    #[arg(long = "admin", env = "FENCEGATE_ADMIN", default_value = "http://127.0.0.1:9090")]
    url: String,
}
