//! The API that is written to: one account, which holds whatever was put there last.
//!
//! It stands for any API that people have: no leases, no tokens, no versions. What it adds for the
//! demo is a record of every write that reached it, so that nobody has to be believed.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use prometheus::Registry;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::config::ApiLimits;
use crate::http_server::{self, ApiBounds};
use crate::metrics::LimitMetrics;

/// Where the account is, and so the resource that Fencegate derives from a request to it.
pub(super) const PATH: &str = "/accounts/1";

/// What the account holds at first.
pub(super) const AT_FIRST: Account = Account { balance: 100, written_by: String::new() };

/// For the gateway and whoever looks; nobody waits for leases here.
const FEW: ApiLimits = ApiLimits {
    connections: 64,
    client_connections: 64,
    body_bytes: 1024,
    handshake_timeout: Duration::from_secs(10),
    timeout: Duration::from_secs(10),
    lease_waiters: 0,
    resource_lease_waiters: 0,
};

/// The account as it is sent and stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Account {
    pub(super) balance: i64,
    pub(super) written_by: String,
}

/// The API while it serves; it ends when this is dropped.
pub(super) struct Api {
    pub(super) address: SocketAddr,
    ledger: Ledger,
    _serving: DropGuard,
}

/// Every body that was put, in the order of arrival.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<String>>>);

impl Api {
    pub(super) async fn start() -> anyhow::Result<Api> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let ledger = Ledger::default();
        let router = Router::new().route(PATH, get(read).put(write)).with_state(ledger.clone());
        let bounds = (ApiBounds::new(FEW), LimitMetrics::register(&Registry::new())?);
        let shutdown = CancellationToken::new();
        let serving = shutdown.clone().drop_guard();
        tokio::spawn(async move {
            http_server::serve(listener, None, router, bounds, shutdown, &TaskTracker::new()).await;
        });
        Ok(Api { address, ledger, _serving: serving })
    }

    /// Every write that reached the API, in the order of arrival.
    pub(super) fn writes(&self) -> serde_json::Result<Vec<Account>> {
        self.ledger.lock().iter().map(|body| serde_json::from_str(body)).collect()
    }
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        // A list that is only pushed to is whole whatever happened to others.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(State(ledger): State<Ledger>) -> String {
    let last = ledger.lock().last().cloned();
    last.unwrap_or_else(|| serde_json::json!(AT_FIRST).to_string())
}

async fn write(State(ledger): State<Ledger>, body: String) -> &'static str {
    ledger.lock().push(body);
    "stored\n"
}
