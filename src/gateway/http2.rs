//! A client connection that speaks HTTP/2.
//!
//! Each stream is a task with a [`Watch`] of its own, and goes the way that a request of HTTP/1.1 goes. Owned here is
//! what bounds a connection of many requests: streams at a time, heads, windows, answers that a client does not
//! take, and streams that it opens only to reset them. A stream that is reset, or whose connection ends, is
//! a client that left: a write that was forwarded goes on.
//! Deliberately absent: server push, extended CONNECT (it is not offered, so h2 refuses it), priorities.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::ResponseBody;
use super::client::Client;
use super::client_stream::ClientStream;
use super::connection::{HeadLimits, Serving, until_end};
use super::service::Worker;
use super::threads::Thread;
use super::watch::{Tenancy, Watch};
use crate::problem::Code;

/// What a client may send before it is read: of one stream, and of all of a connection.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// What waits for a client to take it, of one stream.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// Streams that a client reset before they were looked at: the beginning of a rapid reset (CVE-2023-44487).
const UNSEEN_RESETS: usize = 20;
/// Streams that were reset here because the client broke the protocol.
const ERRORS: usize = 64;
/// The streams of one connection.
struct Streams {
    thread: Arc<Thread>,
    worker: Arc<Worker>,
    client: Arc<Client>,
    tenancy: Arc<Tenancy>,
    /// Of the connection.
    watch: Arc<Watch>,
    /// Of the stream that hyper has made a future for, and not handed to be run yet.
    next: Mutex<Option<Arc<Watch>>>,
    open: AtomicUsize,
    /// Streams that the client reset before they were answered, less those that were answered. Beyond their limit the
    /// connection ends: what a stream began may go on without it, so that the bound on streams alone would bound nothing.
    resets: AtomicUsize,
}

/// Runs hyper's futures: each is a stream.
#[derive(Clone)]
struct Crew(Arc<Streams>);

/// Serves a connection until its end.
pub(super) async fn serve(
    stream: ClientStream,
    client: Arc<Client>,
    tenancy: Arc<Tenancy>,
    worker: Arc<Worker>,
    thread: &Arc<Thread>,
) {
    let (limits, vigils) = (worker.head, &thread.vigils);
    let watch = new_watch(&client, &tenancy, &worker);
    let _enrolled = vigils.enrol(&watch);
    let streams = Arc::new(Streams {
        thread: Arc::clone(thread),
        worker,
        client,
        tenancy,
        watch: Arc::clone(&watch),
        next: Mutex::new(None),
        open: AtomicUsize::new(0),
        resets: AtomicUsize::new(0),
    });
    let io = TokioIo::new(Flow { stream, watch: Arc::clone(&watch) });
    let for_service = Arc::clone(&streams);
    let service = service_fn(move |request| {
        let Streams { thread, worker, client, tenancy, .. } = &*for_service;
        let watch = new_watch(client, tenancy, worker);
        *for_service.next() = Some(Arc::clone(&watch));
        one(thread.successor(worker), watch, limits, request)
    });
    let connection = http2::Builder::new(Crew(Arc::clone(&streams)))
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(UNSEEN_RESETS)
        .max_local_error_reset_streams(ERRORS)
        .serve_connection(io, service);
    let connection = Bounded { connection, streams, is_closing: false };
    // However it ends: h2 has told the client why, and no request is lost that was answered.
    let _ = until_end(pin!(connection), &watch, vigils).await;
}

async fn one(
    worker: Arc<Worker>,
    watch: Arc<Watch>,
    limits: HeadLimits,
    request: Request<Incoming>,
) -> Result<Response<StreamBody>, Infallible> {
    let answer = if request.headers().len() > limits.fields {
        watch.serving();
        let problem =
            worker.refuse_head(Code::HeadTooLarge, &"the request's head has too many fields");
        let own = problem.to_response().map(ResponseBody::own);
        own.map(|body| body.watched_by(Arc::clone(&watch)))
    } else {
        worker.serve(Arc::clone(&watch), request).await?
    };
    Ok(answer.map(|body| StreamBody { body, watch }))
}

fn new_watch(client: &Arc<Client>, tenancy: &Arc<Tenancy>, worker: &Worker) -> Arc<Watch> {
    let (runtime, tasks) = (worker.runtime.clone(), worker.tasks.clone());
    Arc::new(Watch::new(Arc::clone(client), Arc::clone(tenancy), runtime, tasks))
}

impl Streams {
    fn next(&self) -> std::sync::MutexGuard<'_, Option<Arc<Watch>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.watch.serving();
    }

    fn closed(&self, was_answered: bool) {
        if self.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.watch.rests();
        }
        let resets = self.resets.load(Ordering::Relaxed);
        let resets = if was_answered { resets.saturating_sub(1) } else { resets + 1 };
        self.resets.store(resets, Ordering::Relaxed);
        if self.has_reset_too_many() {
            self.watch.call();
        }
    }

    fn has_reset_too_many(&self) -> bool {
        self.resets.load(Ordering::Relaxed) > self.worker.head.resets
    }

    /// Works on a stream until it ends, or its client has used up its time. Dropped, it is reset.
    async fn run(self: Arc<Streams>, watch: Arc<Watch>, stream: impl Future<Output = ()>) {
        let vigils = &self.thread.vigils;
        let enrolled = vigils.enrol(&watch);
        {
            // Its end is also that of the answer, which tells the watch when it goes.
            let mut stream = pin!(stream);
            let mut is_registered = false;
            std::future::poll_fn(|cx| {
                if !std::mem::replace(&mut is_registered, true) {
                    watch.register(cx.waker());
                }
                // Asked first: a step that begins in this poll would hide the call.
                let is_called = watch.is_called();
                if stream.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                let is_called = is_called || watch.is_called();
                let is_over = || vigils.abort.is_cancelled() || vigils.is_overdue(&watch);
                if is_called && is_over() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        drop(enrolled);
        self.closed(watch.is_answered());
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Crew {
    fn execute(&self, stream: F) {
        // hyper asks for a stream's future and hands it over in one step. Nothing else is run here: it would be
        // an upgrade, which CONNECT alone can bring, and no CONNECT is answered with success.
        let Some(watch) = self.0.next().take() else { return };
        self.0.opened();
        let streams = Arc::clone(&self.0);
        let worker = Arc::clone(&streams.worker);
        worker.tasks.spawn_on(streams.run(watch, stream), &worker.runtime);
    }
}

/// A connection that ends when its client only resets what it opens, and after its last request.
struct Bounded<C> {
    connection: C,
    streams: Arc<Streams>,
    /// The client knows that there will be no further request.
    is_closing: bool,
}

impl<C: Serving + Unpin> Future for Bounded<C> {
    type Output = hyper::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.streams.has_reset_too_many() {
            tracing::warn!(
                client = %self.streams.client.address,
                "an HTTP/2 connection was closed: its client reset too many requests"
            );
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.connection).poll(cx);
        if polled.is_pending() && self.streams.watch.is_spent() && !self.is_closing {
            self.as_mut().shut_down();
            return Pin::new(&mut self.connection).poll(cx);
        }
        polled
    }
}

impl<C: Serving + Unpin> Serving for Bounded<C> {
    fn shut_down(mut self: Pin<&mut Self>) {
        self.is_closing = true;
        Pin::new(&mut self.connection).shut_down();
    }
}

impl<I, S, E> Serving for http2::Connection<I, S, E>
where
    http2::Connection<I, S, E>: Future<Output = hyper::Result<()>>,
    S: HttpService<Incoming>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S::ResBody: Body + 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    E: hyper::rt::bounds::Http2ServerConnExec<S::Future, S::ResBody>,
{
    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// An answer's body, of which is known who is waited for: after a part it is the client, until the next is asked for.
struct StreamBody {
    body: ResponseBody,
    watch: Arc<Watch>,
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.watch.wrote(true);
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.watch.wrote(false);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The bytes of a connection. Here it only matters whether the client takes any.
struct Flow {
    stream: ClientStream,
    watch: Arc<Watch>,
}

impl AsyncRead for Flow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Flow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.watch.wrote(written.is_ready());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
