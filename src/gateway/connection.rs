//! One client connection.
//!
//! hyper reads and writes HTTP. Added here is what it leaves open: a bound on how long a head may
//! take that costs nothing per request, and words in the answers that hyper makes by itself (a
//! malformed or oversized head), which would otherwise be a bare status.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::service::Worker;
use crate::problem::{Code, Problem};

/// How long a connection may rest between two requests: as long as nginx and most clients allow.
const REST: Duration = Duration::from_secs(75);
/// How long a new connection may take to bring its first request once the gateway is closing.
const LAST_CHANCE: Duration = Duration::from_millis(100);
/// How long the last words to a client may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What bounds a request's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    pub(super) bytes: usize,
    pub(super) fields: usize,
    pub(super) timeout: Duration,
}

/// What the connection's two halves, the bytes and the requests, tell each other.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// A request is in work, or its answer is not written yet.
    serving: AtomicBool,
    /// The answer was handed over to the last byte, but may not be flushed.
    answered: AtomicBool,
    /// Bytes of a next head have arrived.
    head_begun: AtomicBool,
    has_served: AtomicBool,
    /// Looks at the clock since the last request.
    looks: AtomicU32,
}

impl Watch {
    pub(super) fn serving(&self) {
        self.answered.store(false, Ordering::Relaxed);
        self.head_begun.store(false, Ordering::Relaxed);
        self.serving.store(true, Ordering::Relaxed);
        self.has_served.store(true, Ordering::Relaxed);
        self.looks.store(0, Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    fn flushed(&self) {
        if self.answered.load(Ordering::Relaxed) {
            self.serving.store(false, Ordering::Relaxed);
        }
    }

    fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Relaxed)
    }

    fn received(&self) {
        if !self.is_serving() && !self.head_begun.swap(true, Ordering::Relaxed) {
            self.looks.store(0, Ordering::Relaxed);
        }
    }

    /// Called at every look at the clock: whether the client has used up its time.
    fn is_overdue(&self, look: Duration, head: Duration) -> bool {
        if self.is_serving() {
            return false;
        }
        let waited = look * self.looks.fetch_add(1, Ordering::Relaxed);
        waited >= if self.head_begun.load(Ordering::Relaxed) { head } else { REST }
    }
}

/// Serves a connection until its end. `closing` lets the request in work finish; `abort` does not.
pub(super) async fn serve(
    stream: TcpStream,
    worker: Arc<Worker>,
    limits: HeadLimits,
    closing: CancellationToken,
    abort: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let watch = Arc::new(Watch::default());
    let io = TokioIo::new(Watched { stream, watch: Arc::clone(&watch), own_words: None });
    let for_service = Arc::clone(&watch);
    let service =
        service_fn(move |request| Arc::clone(&worker).serve(Arc::clone(&for_service), request));
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(limits.bytes.max(8192))
        .max_headers(limits.fields)
        .half_close(false)
        .serve_connection(io, service);
    let look = (limits.timeout / 8).clamp(Duration::from_millis(25), Duration::from_secs(1));
    let mut next_look = pin!(sleep_until(Instant::now() + look));
    let mut is_closing = false;
    let mut closed = pin!(told_to_close(&closing, &watch));
    let mut aborted = pin!(abort.cancelled());
    loop {
        tokio::select! {
            biased;
            // How a connection ended is the client's concern: what it asked for was logged.
            _ = &mut connection => return,
            () = &mut next_look => {
                if watch.is_overdue(look, limits.timeout) {
                    break;
                }
                next_look.as_mut().reset(Instant::now() + look);
            }
            () = &mut closed, if !is_closing => {
                is_closing = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            () = &mut aborted => return,
        }
    }
    if watch.head_begun.load(Ordering::Relaxed) {
        let mut io = connection.into_parts().io.into_inner().stream;
        let words = own_words(Code::RequestTimeout, "the request's head did not arrive in time");
        let _ = timeout(LAST_WORDS, async {
            io.write_all(&words).await?;
            io.shutdown().await
        })
        .await;
    }
}

/// A connection that carried no request yet gets a last chance: its first may be on the way.
async fn told_to_close(closing: &CancellationToken, watch: &Watch) {
    closing.cancelled().await;
    if !watch.has_served.load(Ordering::Relaxed) {
        tokio::time::sleep(LAST_CHANCE).await;
    }
}

/// The bytes of an answer that no request made.
fn own_words(code: Code, detail: &str) -> Bytes {
    let answer = Problem::new(code, detail).to_response();
    let mut words = format!("HTTP/1.1 {}\r\n", answer.status()).into_bytes();
    for (name, value) in answer.headers() {
        words.extend_from_slice(name.as_str().as_bytes());
        words.extend_from_slice(b": ");
        words.extend_from_slice(value.as_bytes());
        words.extend_from_slice(b"\r\n");
    }
    let length = answer.body().len();
    words.extend_from_slice(
        format!("content-length: {length}\r\nconnection: close\r\n\r\n").as_bytes(),
    );
    words.extend_from_slice(answer.body());
    words.into()
}

/// The bytes of a connection, watched.
struct Watched {
    stream: TcpStream,
    watch: Arc<Watch>,
    /// Said in place of hyper's own bare answer, as far as it is not written yet.
    own_words: Option<Bytes>,
}

impl Watched {
    /// hyper answers a head that it cannot read by itself and then closes. That is the only thing it
    /// writes while no request is in work, so it can be told from a real answer.
    fn poll_own_words(&mut self, cx: &mut Context<'_>, bare_answer: &[u8]) -> Poll<io::Result<()>> {
        let words = self.own_words.get_or_insert_with(|| {
            let status = bare_answer.get(9..12).unwrap_or_default();
            match status {
                b"431" => own_words(Code::HeadTooLarge, "the request's head is too large"),
                b"414" => own_words(Code::HeadTooLarge, "the request's target is too long"),
                _ => own_words(
                    Code::InvalidRequest,
                    "the request's head is not valid HTTP/1.1 (RFC 9112)",
                ),
            }
        });
        while words.has_remaining() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, words))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            words.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.watch.received();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.watch.is_serving() {
            return Pin::new(&mut self.stream).poll_write(cx, data);
        }
        ready!(self.poll_own_words(cx, data))?;
        Poll::Ready(Ok(data.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.watch.is_serving() {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        }
        let first = data.first().map_or(&[][..], |slice| slice);
        ready!(self.poll_own_words(cx, first))?;
        Poll::Ready(Ok(data.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.watch.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
