//! What all rows share: a directory, the split of the cores, the upstream, and a runtime for the
//! clients of this process.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use fencegate::clock::Clock;
use http::Method;
use tokio::runtime::Runtime;

use crate::client;
use crate::machine::Cores;
use crate::nginx;
use crate::peers::Peers;
use crate::process::Server;

/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often a server that does not answer yet is asked. Start-up times are this exact.
const LOOK: Duration = Duration::from_micros(500);

/// The place where everything runs.
///
/// The directory is under `target`, not under `/tmp`: that may be memory, which makes a durable
/// write cost nothing.
#[derive(Debug)]
pub(crate) struct Lab<'a> {
    pub(crate) peers: &'a Peers,
    pub(crate) cores: Cores,
    pub(crate) clock: Clock,
    /// Where the upstream listens.
    pub(crate) upstream: SocketAddr,
    runtime: Runtime,
    // Ended before the directory is deleted: fields are dropped in this order.
    _upstream: Server,
    directory: tempfile::TempDir,
}

impl<'a> Lab<'a> {
    /// Makes the directory and starts the upstream.
    pub(crate) fn open(peers: &'a Peers) -> Result<Lab<'a>> {
        let cores = Cores::split()?;
        cores.leave_the_proxy_alone()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let directory =
            tempfile::Builder::new().prefix("compare-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let (mut server, upstream) = nginx::upstream(peers, &cores, directory.path())?;
        let clock = Clock::new();
        wait_for_answer(&runtime, clock, &mut server, upstream, "/", |_| true)?;
        Ok(Lab { peers, cores, clock, upstream, runtime, _upstream: server, directory })
    }

    /// Where files of the servers go.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a client of this process, on the cores that make the load.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(future)
    }

    /// Waits until a server answers `GET path` as wanted.
    pub(crate) fn wait_for_answer(
        &self,
        server: &mut Server,
        address: SocketAddr,
        path: &str,
        wanted: impl Fn(http::StatusCode) -> bool,
    ) -> Result<()> {
        wait_for_answer(&self.runtime, self.clock, server, address, path, wanted)
    }
}

fn wait_for_answer(
    runtime: &Runtime,
    clock: Clock,
    server: &mut Server,
    address: SocketAddr,
    path: &str,
    wanted: impl Fn(http::StatusCode) -> bool,
) -> Result<()> {
    let deadline = clock.now() + START_LIMIT;
    loop {
        let answer = runtime.block_on(client::once(address, Method::GET, path));
        if let Ok((status, _)) = &answer
            && wanted(*status)
        {
            return Ok(());
        }
        server.check_alive()?;
        if clock.now() > deadline {
            let got = match answer {
                Ok((status, body)) => format!("{status}: {}", String::from_utf8_lossy(&body)),
                Err(error) => format!("{error:#}"),
            };
            bail!(
                "{address}{path} is not as wanted after {START_LIMIT:?}: {got}; {}",
                server.said()
            );
        }
        std::thread::sleep(LOOK);
    }
}
