//! A request's body on the client's connection, to its end.
//!
//! Whoever has no more use for a body drops it. What the client still sends is then read and
//! thrown away for a while: if the connection were closed at once, the client would be told of a
//! reset instead of the answer, and a client that has its answer can go on with the connection.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::quiet;
use super::watch::Watch;

/// How long the rest of a body is read for nothing.
const LINGER: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Upload {
    /// Taken only by `drop`.
    body: Option<Incoming>,
    watch: Arc<Watch>,
    /// The client sends the body only if it is asked to go on, which a first read does.
    is_held_back: bool,
    is_over: bool,
}

impl Upload {
    pub(super) fn new(body: Incoming, watch: &Arc<Watch>, is_held_back: bool) -> Upload {
        watch.upload_began();
        Upload { body: Some(body), watch: Arc::clone(watch), is_held_back, is_over: false }
    }

    pub(super) async fn frame(&mut self) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        self.is_held_back = false;
        let frame = ready!(quiet::poll_frame(body, cx));
        self.is_over = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.is_over || self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.is_end_stream() || self.is_held_back {
            return self.watch.upload_ended();
        }
        if let Some(mut body) = self.body.take() {
            let watch = Arc::clone(&self.watch);
            self.watch.runtime.spawn(async move {
                let rest = async { while let Some(Ok(_)) = body.frame().await {} };
                let _ = timeout(LINGER, rest).await;
                watch.upload_ended();
            });
        }
    }
}
