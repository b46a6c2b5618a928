//! The server under the lease API and the admin API: axum routes over hyper's HTTP/1, bounded.
//!
//! `axum::serve` has no timeouts. Here a client that sends or reads nothing is dropped, the number
//! of connections is limited, and whatever the router itself refuses is a problem document. Also
//! what both APIs read of a request alike, so that neither takes what the other refuses.
//! Deliberately absent: the proxy listener, whose fast path has a server of its own.

mod bounded_body;
mod input;
mod places;
mod resource_name;
mod write_timeout;

use std::error::Error;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::map_request;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::bounded_body::{BodyError, BoundedBody};
pub(crate) use self::input::{LimitQuery, PageQuery, bounded, parse_json, parse_query};
use self::places::Places;
pub(crate) use self::resource_name::ResourceName;
use self::write_timeout::WriteTimeout;
use crate::config::ApiLimits;
use crate::metrics::LimitMetrics;
use crate::problem::{Code, Problem};
pub use crate::tls::PeerIdentity;
use crate::tls::{self, Handshakes};

const HEAD_BYTES: usize = 64 * 1024;
/// What accept does when the process is out of file descriptors: it tries again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What bounds the clients of both listeners; clones share it.
#[derive(Clone, Debug)]
pub struct ApiBounds(Arc<Mutex<ApiLimits>>);

impl ApiBounds {
    /// Begins with these.
    #[must_use]
    pub fn new(limits: ApiLimits) -> ApiBounds {
        ApiBounds(Arc::new(Mutex::new(limits)))
    }

    /// Those that hold now.
    #[must_use]
    pub fn get(&self) -> ApiLimits {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets others, for connections and requests that begin later.
    pub fn set(&self, limits: ApiLimits) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }
}

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
    (bounds, hits): (ApiBounds, LimitMetrics),
    shutdown: CancellationToken,
    tasks: &TaskTracker,
) {
    let router = bounded_bodies(router, bounds.clone());
    let places = Places::new(bounds.clone());
    let next = async || {
        // A client beyond the limit waits in the kernel's queue, which is bounded too.
        places.room().await;
        listener.accept().await
    };
    while let Some(accepted) = shutdown.run_until_cancelled(next()).await {
        match accepted {
            Ok((stream, from)) => {
                let Some(place) = places.enter(from.ip()) else {
                    // Closed without a word; the proxy listener has more to say.
                    hits.hit("limits.client_connections");
                    continue;
                };
                let (tls, router) = (tls.clone(), router.clone());
                let served = connection(bounds.get(), stream, tls, router, shutdown.clone());
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

/// Bounds what [`read_body`] reads.
fn bounded_bodies(router: Router, bounds: ApiBounds) -> Router {
    router.layer(map_request(move |request: Request| {
        let ApiLimits { body_bytes, timeout, .. } = bounds.get();
        std::future::ready(
            request.map(|body| Body::new(BoundedBody::new(body, body_bytes, timeout))),
        )
    }))
}

async fn connection(
    limits: ApiLimits,
    stream: TcpStream,
    tls: Option<Handshakes>,
    router: Router,
    shutdown: CancellationToken,
) {
    // Without it small answers wait for the client's acknowledgement; if it fails they only do.
    let _ = stream.set_nodelay(true);
    let ApiLimits { timeout, handshake_timeout, .. } = limits;
    let Some(handshakes) = tls else { return requests(timeout, stream, router, shutdown).await };
    let handshake = shutdown.run_until_cancelled(handshakes.accept(stream, handshake_timeout));
    let Some(Some(stream)) = handshake.await else { return };
    let router = match tls::identity(&stream) {
        Some(identity) => router.layer(Extension(identity)),
        None => router,
    };
    requests(timeout, stream, router, shutdown).await;
}

/// `limit` is for the head of a request, for the rest between two, and for the client to take any part of an answer.
async fn requests<S>(limit: Duration, stream: S, router: Router, shutdown: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let stream = TokioIo::new(WriteTimeout::new(stream, limit));
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limit)
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

/// Reads a whole body, as far as it is bounded by [`serve`].
///
/// # Errors
/// It is too large, took too long, or broke off.
pub async fn read_body(body: Body) -> Result<Bytes, Problem> {
    let read = body.collect().await.map_err(|error| {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<BodyError>());
        let code = match cause {
            Some(BodyError::TooLarge(_)) => Code::BodyTooLarge,
            Some(BodyError::TooSlow(_)) => Code::RequestTimeout,
            Some(BodyError::Broken(_)) | None => Code::InvalidRequest,
        };
        Problem::new(code, cause.map_or_else(|| error.to_string(), ToString::to_string))
    })?;
    Ok(read.to_bytes())
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
