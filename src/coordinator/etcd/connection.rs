//! The way to etcd: one endpoint at a time, the next one when it fails.
//!
//! The client library does not fail over: with several endpoints it sends each request to some
//! endpoint and leaves what fails to the caller. So there is one client for one endpoint here, and a
//! request that fails for the endpoint's sake is made again at the next one. Every request of this
//! coordinator may be made twice: those that change something name what they expect to find.
//! Invariant: no call takes longer than [`CALL_LIMIT`].

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{
    Client, ConnectOptions, Error, KeyValue, ResponseHeader, Txn, TxnOp, TxnOpResponse,
};
use prometheus::{IntCounterVec, Opts, Registry};
use tokio::time::timeout;

use super::EtcdSettings;
use crate::coordinator::CoordinatorError;

/// All attempts of one call together: longer than the election of a leader takes.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// One endpoint's answer. An endpoint that is suspended or cut off costs a call this much, once.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(2);
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// When every endpoint has failed, before the first one is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Finds connections that are dead without a word; etcd forbids pings more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_LIMIT: Duration = Duration::from_secs(3);

/// A client of one endpoint out of several. Calls share it until it fails.
pub(super) struct Connection {
    endpoints: Vec<String>,
    options: ConnectOptions,
    state: Mutex<State>,
    /// By endpoint: times that it was given up.
    failovers: IntCounterVec,
}

#[derive(Default)]
struct State {
    /// Counts the endpoints that were given up, and so says which one is in use.
    turn: usize,
    client: Option<Client>,
}

/// What some ranges held at one moment.
#[derive(Debug)]
pub(super) struct Found {
    /// In the order of the reads.
    pub(super) keys: Vec<Vec<KeyValue>>,
    /// etcd's revision at that moment.
    pub(super) revision: i64,
    /// Which etcd it is.
    pub(super) cluster_id: u64,
}

/// Why a call was not answered with what it asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The etcd lease it names is not there, or not any more.
    #[error("etcd does not know the lease any more")]
    NoSuchLease,
    /// The revision to watch from is compacted away.
    #[error("etcd has compacted away what was asked for")]
    Compacted,
    /// No endpoint answered, or etcd does not let us.
    #[error("{0}")]
    Unavailable(String),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The options hold a password and a private key.
        f.debug_struct("Connection").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects when the first call is made.
    pub(super) fn new(settings: &EtcdSettings) -> Connection {
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_LIMIT)
            .with_keep_alive(PING_EVERY, PING_LIMIT)
            // A member that is cut off from the others says so instead of waiting for them.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(user) = &settings.user {
            options = options.with_user(user.name.clone(), user.password.clone());
        }
        if let Some(tls) = &settings.tls {
            options = options.with_tls(tls.options());
        }
        Connection {
            endpoints: settings.endpoints.iter().map(|at| format!("{scheme}://{at}")).collect(),
            options,
            state: Mutex::default(),
            failovers: IntCounterVec::new(
                Opts::new(
                    "fencegate_etcd_failovers_total",
                    "Times that an endpoint of etcd failed a request and the next one was asked.",
                ),
                &["endpoint"],
            )
            .expect("the name and the label are valid"),
        }
    }

    /// Registers what is counted of the endpoints, each at zero.
    pub(super) fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        for endpoint in &self.endpoints {
            self.failovers.with_label_values(&[endpoint]);
        }
        registry.register(Box::new(self.failovers.clone()))
    }

    /// Makes a call, at one endpoint after the other until one answers. `work` may run more than once.
    pub(super) async fn call<T, F>(&self, work: impl Fn(Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut last = String::from("it took too long to connect");
        let attempts = async {
            loop {
                let (turn, error) = match self.attempt(&work).await {
                    Ok(answer) => return Ok(answer),
                    Err((turn, error)) => (turn, error),
                };
                match error {
                    Attempted::Final(failure) => return Err(failure),
                    Attempted::Elsewhere(why) => last = format!("{}: {why}", self.endpoint(turn)),
                }
                self.give_up(turn);
                if (turn + 1) % self.endpoints.len() == 0 {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        let result = timeout(CALL_LIMIT, attempts).await;
        result.unwrap_or_else(|_| Err(Failure::Unavailable(format!("etcd at {last}"))))
    }

    /// Reads some ranges at one moment. Linearizable: it goes through a quorum, so that a member that
    /// was cut off from the others cannot tell of yesterday.
    pub(super) async fn read(&self, reads: Vec<TxnOp>) -> Result<Found, Failure> {
        let txn = Txn::new().and_then(reads);
        let answer = self.call(async |client| client.kv_client().txn(txn.clone()).await).await?;
        let keys = answer.op_responses().into_iter().map(|found| match found {
            TxnOpResponse::Get(mut found) => found.take_kvs(),
            _ => Vec::new(),
        });
        let header = answer.header();
        Ok(Found {
            keys: keys.collect(),
            revision: header.map_or(0, ResponseHeader::revision),
            cluster_id: header.map_or(0, ResponseHeader::cluster_id),
        })
    }

    async fn attempt<T, F>(&self, work: impl Fn(Client) -> F) -> Result<T, (usize, Attempted)>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let (turn, client) = {
            let state = self.lock();
            (state.turn, state.client.clone())
        };
        let attempt = async {
            let client = match client {
                Some(client) => client,
                None => Box::pin(self.connect(turn)).await?,
            };
            // Both boxed, as they are large, and every move of a call would copy them.
            Box::pin(work(client)).await
        };
        match timeout(ATTEMPT_LIMIT, attempt).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err((turn, Attempted::of(&error))),
            Err(_) => Err((turn, Attempted::Elsewhere("no answer in time".to_owned()))),
        }
    }

    async fn connect(&self, turn: usize) -> Result<Client, Error> {
        let client = Client::connect([self.endpoint(turn)], Some(self.options.clone())).await?;
        let mut state = self.lock();
        if state.turn == turn {
            state.client = Some(client.clone());
        }
        Ok(client)
    }

    /// The next call goes to the next endpoint, unless another call has seen to that already.
    fn give_up(&self, turn: usize) {
        let mut state = self.lock();
        if state.turn == turn {
            *state = State { turn: turn + 1, client: None };
            self.failovers.with_label_values(&[self.endpoint(turn)]).inc();
        }
    }

    fn endpoint(&self, turn: usize) -> &str {
        &self.endpoints[turn % self.endpoints.len()]
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an attempt failed.
enum Attempted {
    /// It is the endpoint's fault, or may be.
    Elsewhere(String),
    /// No endpoint would answer otherwise.
    Final(Failure),
}

impl Attempted {
    fn of(error: &Error) -> Attempted {
        /// The numbers of gRPC.
        const NOT_FOUND: i32 = 5;
        const PERMISSION_DENIED: i32 = 7;
        const OUT_OF_RANGE: i32 = 11;
        let status = match error {
            // How the library says that a keepalive was answered with a TTL of zero.
            Error::LeaseKeepAliveError(_) => return Attempted::Final(Failure::NoSuchLease),
            Error::GRpcStatus(status) => status,
            other => return Attempted::Elsewhere(other.to_string()),
        };
        let message = status.message().to_owned();
        match status.code() as i32 {
            NOT_FOUND if message.contains("lease") => Attempted::Final(Failure::NoSuchLease),
            OUT_OF_RANGE if message.contains("compacted") => Attempted::Final(Failure::Compacted),
            PERMISSION_DENIED => Attempted::Final(Failure::Unavailable(format!(
                "etcd refuses: {message}; let coordinator.username read and write \
                 everything under coordinator.prefix"
            ))),
            // Whatever else it is: a new connection has a new auth token, and costs little.
            _ => Attempted::Elsewhere(message),
        }
    }
}

impl From<Failure> for CoordinatorError {
    fn from(failure: Failure) -> CoordinatorError {
        CoordinatorError::Unavailable(failure.to_string())
    }
}
