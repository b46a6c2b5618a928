//! The way to the upstream: one connection per connection of the client, made anew when it is gone
//! or when the next request goes elsewhere.
//!
//! A request is sent a second time only if the first connection provably took no byte of it.

use std::sync::Mutex;
use std::time::Duration;

use http::uri::Authority;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::worker::held::LeaseView;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may take to be done with the answer before; a new one is cheap.
const READY_TIMEOUT: Duration = Duration::from_millis(20);

/// Why there is no answer.
pub(super) enum Failure {
    /// Nothing was sent.
    LeaseLost,
    /// Nothing was sent.
    Unreachable(String),
    /// Something may have been sent.
    OutcomeUnknown(String),
}

type Sender = SendRequest<Incoming>;

pub(super) struct Upstream {
    idle: Mutex<Option<(Authority, Sender)>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Upstream {
    pub(super) fn new(stop: CancellationToken, tasks: TaskTracker) -> Upstream {
        Upstream { idle: Mutex::new(None), stop, tasks }
    }

    /// Sends the request while the lease is live; the answer's head is here when this returns.
    pub(super) async fn send(
        &self,
        host: &Authority,
        mut request: Request<Incoming>,
        lease: &LeaseView,
    ) -> Result<Response<Incoming>, Failure> {
        let mut reused = self.reuse(host).await;
        loop {
            let is_reused = reused.is_some();
            let mut sender = match reused.take() {
                Some(sender) => sender,
                None => self.connect(host).await?,
            };
            // Connecting took its time.
            if !lease.is_live() {
                return Err(Failure::LeaseLost);
            }
            let mut error = match sender.try_send_request(request).await {
                Ok(answer) => {
                    self.keep(host, sender);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            // A request that comes back was never taken by the connection.
            request = match error.take_message() {
                Some(unsent) if is_reused => unsent,
                Some(_) => return Err(Failure::Unreachable(text(error.error()))),
                None => return Err(Failure::OutcomeUnknown(text(error.error()))),
            };
        }
    }

    async fn reuse(&self, host: &Authority) -> Option<Sender> {
        let (kept_host, mut sender) = self.idle.lock().ok()?.take()?;
        if kept_host != *host {
            return None;
        }
        tokio::time::timeout(READY_TIMEOUT, sender.ready()).await.ok()?.ok()?;
        Some(sender)
    }

    fn keep(&self, host: &Authority, sender: Sender) {
        if let Ok(mut idle) = self.idle.lock() {
            *idle = Some((host.clone(), sender));
        }
    }

    async fn connect(&self, host: &Authority) -> Result<Sender, Failure> {
        let address = match host.port_u16() {
            Some(_) => host.as_str().to_owned(),
            None => format!("{}:80", host.host()),
        };
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
            .await
            .map_err(|_| Failure::Unreachable("connecting took too long".into()))?
            .map_err(|error| Failure::Unreachable(error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Failure::Unreachable(text(&error)))?;
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(async move {
            // What goes wrong is told to whoever waits for the answer.
            let _ = connection.await;
        }));
        Ok(sender)
    }
}

fn text(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
