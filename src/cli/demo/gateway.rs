//! A real `fencegate serve` in front of the API, with a store of its own.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::time::timeout;

use super::process::{LOOK, Process, Reports};
use super::{PATIENCE, api};

/// Fields are dropped in this order: the directory is removed when nobody writes to it any more.
pub(super) struct Gateway {
    _process: Process,
    _dir: TempDir,
    pub(super) proxy: SocketAddr,
    leases: SocketAddr,
}

/// The line of the log that says where the gateway listens.
#[derive(Deserialize)]
struct Listening {
    proxy: SocketAddr,
    leases: SocketAddr,
}

impl Gateway {
    /// Starts it on free ports, and waits until it listens.
    pub(super) async fn start(upstream: SocketAddr) -> anyhow::Result<Gateway> {
        let dir = tempfile::Builder::new().prefix("fencegate-demo-").tempdir()?;
        let upstream = format!("http://{upstream}");
        let store = format!("sqlite:{}", dir.path().join("fencegate.db").display());
        let args = [
            ["--upstream", &upstream],
            ["--store", &store],
            ["--listen", "127.0.0.1:0"],
            ["--leases", "127.0.0.1:0"],
            ["--admin", "127.0.0.1:0"],
            ["--log", "info"],
        ];
        let mut process =
            Process::start("the gateway", "gateway", args.as_flattened(), Reports::OnStderr)?;
        let mut said = String::from("nothing");
        while let Some(line) = process.line().await? {
            if let Ok(Listening { proxy, leases }) = serde_json::from_str(&line) {
                return Ok(Gateway { _process: process, _dir: dir, proxy, leases });
            }
            said = line;
        }
        bail!("the gateway ended at its start; the last it said was: {said}")
    }

    /// The URL of the account's lease.
    pub(super) fn lease_url(&self) -> String {
        let resource = utf8_percent_encode(api::PATH, NON_ALPHANUMERIC);
        format!("http://{}/v1/leases/{resource}", self.leases)
    }

    /// Waits until nobody has the account's lease.
    pub(super) async fn lease_ends(&self) -> anyhow::Result<()> {
        let client = Client::builder().no_proxy().timeout(PATIENCE).build()?;
        let url = self.lease_url();
        let ended = async {
            while client.get(&url).send().await?.status() != StatusCode::NOT_FOUND {
                tokio::time::sleep(LOOK).await;
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, ended).await.context("the lease of worker A did not run out")?
    }
}
