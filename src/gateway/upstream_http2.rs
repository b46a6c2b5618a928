//! An upstream connection that speaks HTTP/2.
//!
//! hyper makes several futures of such a connection. Here they are one task, so that to abort that task is
//! to close the connection, at once and with all that any of them holds: what a cut write needs.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use futures_util::stream::{FuturesUnordered, Stream};
use http::header::HOST;
use http::uri::{Parts, Scheme};
use http::{HeaderValue, Request, Uri};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::RequestBody;
use super::refusal::Refusal;
use super::socket::Dirty;
use super::upstream_stream::Framed;

/// What an upstream may send before it is read.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// What an answer's head may be.
const HEAD_BYTES: u32 = 64 * 1024;

type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What hyper wants to be run beside the connection.
#[derive(Clone, Default)]
struct Crew(Arc<Mutex<Vec<Part>>>);

impl Crew {
    fn new_parts(&self) -> Vec<Part> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Crew {
    fn execute(&self, part: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(part));
    }
}

/// Begins HTTP/2, and gives what drives the connection.
pub(super) async fn begin<S>(
    stream: S,
    dirty: Dirty,
) -> io::Result<(SendRequest<RequestBody>, impl Future<Output = ()> + Send + use<S>)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let crew = Crew::default();
    let (sender, connection) = Builder::new(crew.clone())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEAD_BYTES)
        .handshake(TokioIo::new(Framed::new(stream, dirty)))
        .await
        .map_err(io::Error::other)?;
    let drive = async move {
        // Dropped when it is over: it has a handle of its own to what drives the bytes, which else would go on for ever.
        let mut connection = Some(Box::pin(connection));
        let mut parts = FuturesUnordered::new();
        poll_fn(|cx| {
            loop {
                // How a request on it ended is told to whoever sent it.
                if connection.as_mut().is_some_and(|it| it.as_mut().poll(cx).is_ready()) {
                    connection = None;
                }
                parts.extend(crew.new_parts());
                match Pin::new(&mut parts).poll_next(cx) {
                    Poll::Ready(None) if connection.is_none() => return Poll::Ready(()),
                    Poll::Ready(None) => return Poll::Pending,
                    Poll::Ready(Some(())) => {}
                    Poll::Pending => {
                        let new = crew.new_parts();
                        if new.is_empty() {
                            return Poll::Pending;
                        }
                        parts.extend(new);
                    }
                }
            }
        })
        .await;
    };
    Ok((sender, drive))
}

/// Puts what `Host` says into the target, where HTTP/2 has it.
///
/// # Errors
/// It can be no part of a target.
pub(super) fn address(request: &mut Request<RequestBody>, scheme: Scheme) -> Result<(), Refusal> {
    let host = request.headers_mut().remove(HOST);
    let authority = host.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
    let mut parts = Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = Some(
        authority.try_into().map_err(|_| Refusal::InvalidRequest("the Host field is no host"))?,
    );
    parts.path_and_query = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::from_parts(parts)
        .map_err(|_| Refusal::Unresolvable("the target does not go with HTTP/2".into()))?;
    Ok(())
}
