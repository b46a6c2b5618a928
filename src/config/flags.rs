//! The flags of `fencegate serve`, which `fencegate config check` takes as well.

use std::ffi::OsString;
use std::path::PathBuf;

use super::keys::PREFIX;
use super::load::{Override, Sources};

/// What the command line says about the configuration. Values are texts: [`load()`](super::load())
/// reads them, so that a mistake in a flag is reported together with all others.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServeFlags {
    /// Read this file [env: FENCEGATE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Guard the API at this URL; a file is not needed then
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// Time until an unanswered request can no longer take effect at --upstream [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub settle: Option<String>,
    /// Time within which --upstream has to answer [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// What a request writes to, from its path [default: {path}]
    #[arg(long, value_name = "TEMPLATE")]
    pub resource: Option<String>,
    /// Methods that need a token, separated by commas [default: all but GET,HEAD,OPTIONS]
    #[arg(long, value_name = "METHODS")]
    pub fenced: Option<String>,
    /// Where clients of the API connect [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Where workers ask for leases [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    pub leases: Option<String>,
    /// Where metrics, health and fences are seen [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,
    /// Where fences are kept [default: sqlite:fencegate.db]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// What is logged: off, error, warn, info, debug or trace [env: FENCEGATE_LOG] [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
}

impl ServeFlags {
    /// The sources of a configuration: these flags and `environment`, which is
    /// `std::env::vars_os()` outside tests. Variables that are none of ours are not kept.
    pub fn sources(&self, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Sources {
        Sources {
            file: self.config.clone(),
            environment: environment
                .into_iter()
                .filter(|(name, _)| name.to_string_lossy().starts_with(PREFIX))
                .collect(),
            overrides: self.overrides(),
            log: self.log.clone(),
        }
    }

    fn overrides(&self) -> Vec<Override> {
        [
            (&self.upstream, "--upstream", "upstream.0.url"),
            (&self.settle, "--settle", "upstream.0.settle"),
            (&self.timeout, "--timeout", "upstream.0.timeout"),
            (&self.resource, "--resource", "route.0.resource"),
            (&self.fenced, "--fenced", "route.0.fenced"),
            (&self.listen, "--listen", "listen.proxy"),
            (&self.leases, "--leases", "listen.leases"),
            (&self.admin, "--admin", "listen.admin"),
            (&self.store, "--store", "store.url"),
        ]
        .into_iter()
        .filter_map(|(value, flag, path)| {
            Some(Override { path: path.to_owned(), value: value.clone()?, flag })
        })
        .collect()
    }
}
