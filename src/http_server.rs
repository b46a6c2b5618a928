//! The server under the lease API and the admin API: axum routes over hyper's HTTP/1, bounded.
//!
//! `axum::serve` has no timeouts. Here a client that sends or reads nothing is dropped, the number
//! of connections is limited, and whatever the router itself refuses is a problem document. Also
//! what both APIs read of a request alike, so that neither takes what the other refuses.
//! Deliberately absent: the proxy listener, whose fast path has a server of its own.

mod input;
mod resource_name;
mod write_timeout;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::input::{LimitQuery, PageQuery, bounded, parse_json, parse_query};
pub(crate) use self::resource_name::ResourceName;
use self::write_timeout::WriteTimeout;
use crate::problem::{Code, Problem};
pub use crate::tls::PeerIdentity;
use crate::tls::{self, Handshakes};

/// The largest body that [`read_body`] takes.
pub const BODY_BYTES: usize = 16 * 1024;
/// Connections of one listener at a time; clients beyond it wait to be accepted.
pub const CONNECTIONS: usize = 1024;
const HEAD_BYTES: usize = 64 * 1024;
/// What accept does when the process is out of file descriptors: it tries again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What bounds the clients of one listener.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connections: usize,
    /// For the head of a request, and between two requests of one connection.
    head: Duration,
    /// For the client to take any part of an answer.
    write: Duration,
}

const LIMITS: Limits = Limits {
    connections: CONNECTIONS,
    head: Duration::from_secs(10),
    write: Duration::from_secs(10),
};
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers by problem documents to what `router` has nothing for. Apart from [`serve`], so that a guard can
/// stand in front of these answers as well.
pub(crate) fn complete(router: Router) -> Router {
    router.fallback(no_route).method_not_allowed_fallback(method_not_allowed)
}

/// Serves `router` until `shutdown`, then takes no more connections and returns. Requests in flight
/// go on in `tasks`, each connection ending after its answer. Without `tls` it is plain text.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Handshakes>,
    router: Router,
    shutdown: CancellationToken,
    tasks: &TaskTracker,
) {
    serve_within(LIMITS, listener, tls, router, shutdown, tasks).await;
}

async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    tls: Option<Handshakes>,
    router: Router,
    shutdown: CancellationToken,
    tasks: &TaskTracker,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let next = async || {
        // A client beyond the limit waits in the kernel's queue, which is bounded too.
        let place = Arc::clone(&places).acquire_owned().await;
        (place, listener.accept().await)
    };
    while let Some((place, accepted)) = shutdown.run_until_cancelled(next()).await {
        match accepted {
            Ok((stream, _)) => {
                let (tls, router) = (tls.clone(), router.clone());
                let served = connection(limits, stream, tls, router, shutdown.clone());
                tasks.spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    limits: Limits,
    stream: TcpStream,
    tls: Option<Handshakes>,
    router: Router,
    shutdown: CancellationToken,
) {
    // Without it small answers wait for the client's acknowledgement; if it fails they only do.
    let _ = stream.set_nodelay(true);
    let Some(handshakes) = tls else { return requests(limits, stream, router, shutdown).await };
    let handshake = shutdown.run_until_cancelled(handshakes.accept(stream));
    let Some(Some(stream)) = handshake.await else { return };
    let router = match tls::identity(&stream) {
        Some(identity) => router.layer(Extension(identity)),
        None => router,
    };
    requests(limits, stream, router, shutdown).await;
}

async fn requests<S>(limits: Limits, stream: S, router: Router, shutdown: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let stream = TokioIo::new(WriteTimeout::new(stream, limits.write));
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(stream, TowerToHyperService::new(router))
    );
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = shutdown.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Reads a whole body of at most [`BODY_BYTES`].
///
/// # Errors
/// It is too large, took too long, or broke off.
pub async fn read_body(body: Body) -> Result<Bytes, Problem> {
    read_body_within(BODY_TIMEOUT, body).await
}

async fn read_body_within(limit: Duration, body: Body) -> Result<Bytes, Problem> {
    let read = Limited::new(body, BODY_BYTES).collect();
    match tokio::time::timeout(limit, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is larger than {BODY_BYTES} bytes");
            Err(Problem::new(Code::BodyTooLarge, detail))
        }
        Ok(Err(error)) => {
            Err(Problem::new(Code::InvalidRequest, format!("the body broke off: {error}")))
        }
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", limit.as_secs_f32());
            Err(Problem::new(Code::RequestTimeout, detail))
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.to_response().map(Body::from)
    }
}

async fn no_route(uri: http::Uri) -> Problem {
    Problem::new(Code::NoRoute, format!("there is nothing at {}", uri.path()))
}

async fn method_not_allowed(method: http::Method) -> Problem {
    let detail = format!("{method} is not offered here; the Allow header says what is");
    Problem::new(Code::MethodNotAllowed, detail)
}

#[cfg(test)]
mod tests;
