//! Bodies on their way up and down.

mod pieces;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use self::pieces::Pieces;
use super::load::Turn;
use super::quiet;
use super::refusal::Refusal;
use super::sending::chain;
use super::upload::Upload;
use super::upstream::Connection;
use super::vigil::within;
use super::watch::Watch;
use crate::clock::{Boottime, Clock};

/// What bounds a request's body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// Bodies up to this size are whole before admission.
    pub(super) buffer_bytes: usize,
    /// Larger ones are refused.
    pub(super) body_bytes: u64,
    /// When a buffered body has to be there.
    pub(super) until: Boottime,
    /// How long a streamed one may pause.
    pub(super) pause: Duration,
}

/// A request's body.
pub(super) enum RequestBody {
    /// All of it was read before admission.
    Whole(Option<Bytes>),
    /// It is larger than the buffer: it is read from the client while it is sent.
    Stream(Box<Streamed>),
}

pub(super) struct Streamed {
    read: Option<Bytes>,
    rest: Upload,
    bytes_left: u64,
    limit_bytes: u64,
    pause: Duration,
    /// Runs only while the client is waited for: an upstream that is slow to read is no pause.
    paused: Pin<Box<Sleep>>,
    is_waiting: bool,
    /// Told when the last byte went to the upstream's connection; dropped if that never happens.
    sent: Option<oneshot::Sender<()>>,
}

/// Why a streamed body broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the client paused too long")]
    Paused,
    #[error("the client broke off: {0}")]
    Broken(hyper::Error),
}

/// Reads the body up to the buffer's size. A client that is slow here holds no permit.
pub(super) async fn read(
    body: Upload,
    limits: BodyLimits,
    watch: &Watch,
    clock: Clock,
) -> Result<RequestBody, Refusal> {
    if body.is_end_stream() {
        return Ok(RequestBody::Whole(None));
    }
    let announced = body.size_hint().lower();
    if announced > limits.body_bytes {
        return Err(too_large(limits));
    }
    if announced > limits.buffer_bytes as u64 {
        return Ok(RequestBody::stream(Pieces::default(), body, limits));
    }
    watch.until(limits.until);
    within(watch, clock, pin!(collect(body, limits))).await.unwrap_or(Err(Refusal::RequestTimeout))
}

const fn too_large(limits: BodyLimits) -> Refusal {
    Refusal::BodyTooLarge { limit_bytes: limits.body_bytes, sent: false }
}

async fn collect(mut body: Upload, limits: BodyLimits) -> Result<RequestBody, Refusal> {
    let mut read = Pieces::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::BodyBroken(chain(&error)))?;
        // Trailers end here: no field of theirs is needed upstream, and some must not go on.
        let Ok(data) = frame.into_data() else { continue };
        read.push(data);
        if read.len() as u64 > limits.body_bytes {
            return Err(too_large(limits));
        }
        if body.is_end_stream() {
            break;
        }
        if read.len() > limits.buffer_bytes {
            return Ok(RequestBody::stream(read, body, limits));
        }
    }
    Ok(RequestBody::Whole(read.whole()))
}

impl RequestBody {
    fn stream(read: Pieces, rest: Upload, limits: BodyLimits) -> RequestBody {
        RequestBody::Stream(Box::new(Streamed::new(read.whole(), rest, limits)))
    }

    /// Tells when a streamed body was handed over whole; `None` for one that is whole already.
    pub(super) fn on_sent(&mut self) -> Option<oneshot::Receiver<()>> {
        let RequestBody::Stream(stream) = self else { return None };
        let (sent, told) = oneshot::channel();
        stream.sent = Some(sent);
        Some(told)
    }
}

impl Streamed {
    fn new(read: Option<Bytes>, rest: Upload, limits: BodyLimits) -> Streamed {
        Streamed {
            read,
            rest,
            bytes_left: limits.body_bytes,
            limit_bytes: limits.body_bytes,
            pause: limits.pause,
            paused: Box::pin(tokio::time::sleep(limits.pause)),
            is_waiting: false,
            sent: None,
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(data) = self.read.take() {
            return Poll::Ready(Some(Ok(data)));
        }
        loop {
            let Poll::Ready(frame) = self.rest.poll_frame(cx) else {
                if !std::mem::replace(&mut self.is_waiting, true) {
                    let deadline = Instant::now() + self.pause;
                    self.paused.as_mut().reset(deadline);
                }
                ready!(self.paused.as_mut().poll(cx));
                return Poll::Ready(Some(Err(BodyError::Paused)));
            };
            self.is_waiting = false;
            match frame.transpose() {
                Ok(None) => return Poll::Ready(None),
                Ok(Some(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Err(error) => return Poll::Ready(Some(Err(BodyError::Broken(error)))),
            }
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let stream = match &mut *self {
            RequestBody::Whole(data) => {
                return Poll::Ready(data.take().map(|d| Ok(Frame::data(d))));
            }
            RequestBody::Stream(stream) => stream,
        };
        let Some(data) = ready!(stream.poll_data(cx)?) else {
            if let Some(sent) = stream.sent.take() {
                let _ = sent.send(());
            }
            return Poll::Ready(None);
        };
        match stream.bytes_left.checked_sub(data.len() as u64) {
            Some(left) => stream.bytes_left = left,
            None => return Poll::Ready(Some(Err(BodyError::TooLarge(stream.limit_bytes)))),
        }
        if stream.is_end()
            && let Some(sent) = stream.sent.take()
        {
            let _ = sent.send(());
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Whole(data) => data.is_none(),
            RequestBody::Stream(stream) => stream.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Whole(data) => {
                SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64))
            }
            RequestBody::Stream(stream) => {
                let read = stream.read.as_ref().map_or(0, |data| data.len() as u64);
                match stream.rest.size_hint().exact() {
                    Some(rest) => SizeHint::with_exact(read + rest),
                    None => SizeHint::new(),
                }
            }
        }
    }
}

impl Streamed {
    fn is_end(&self) -> bool {
        self.read.is_none() && self.rest.is_end_stream()
    }
}

/// An answer's body, and what has to be told when it is over.
pub(super) struct ResponseBody {
    content: Content,
    watch: Option<Arc<Watch>>,
    /// The request counts as under way until its answer was read.
    _turn: Turn,
}

enum Content {
    /// Of the gateway's own answer.
    Own(Option<Bytes>),
    /// Of the upstream's; the connection goes back to the pool after the last byte.
    Upstream(Incoming, Option<Connection>),
}

impl ResponseBody {
    pub(super) const fn own(data: Bytes) -> ResponseBody {
        ResponseBody { content: Content::Own(Some(data)), watch: None, _turn: Turn::FREE }
    }

    pub(super) fn upstream(body: Incoming, connection: Connection) -> ResponseBody {
        let mut connection = Some(connection);
        if body.is_end_stream() {
            reuse(&mut connection);
        }
        ResponseBody {
            content: Content::Upstream(body, connection),
            watch: None,
            _turn: Turn::FREE,
        }
    }

    pub(super) fn counted_as(mut self, turn: Turn) -> ResponseBody {
        self._turn = turn;
        self
    }

    pub(super) fn watched_by(mut self, watch: Arc<Watch>) -> ResponseBody {
        self.watch = Some(watch);
        self
    }
}

fn reuse(connection: &mut Option<Connection>) {
    if let Some(connection) = connection.take() {
        connection.reuse();
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.content {
            Content::Own(data) => Poll::Ready(data.take().map(|data| Ok(Frame::data(data)))),
            Content::Upstream(body, connection) => {
                let frame = ready!(quiet::poll_frame(body, cx));
                let is_over = frame.is_none() || body.is_end_stream();
                if is_over && !matches!(frame, Some(Err(_))) {
                    reuse(connection);
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Own(data) => data.is_none(),
            Content::Upstream(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own(data) => {
                SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64))
            }
            Content::Upstream(body, _) => body.size_hint(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.answered();
        }
    }
}
