//! One client connection.
//!
//! hyper reads and writes HTTP. Added here is what it leaves open: a bound on how long a head may
//! take that costs nothing per request, and words in place of the answers that hyper makes by itself
//! (to a malformed or oversized head), which are a bare status.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::last_words;
use super::service::Worker;
use super::threads::Thread;
use super::watch::{Tenancy, Watch};
use crate::problem::Code;

/// What bounds a request's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    pub(super) bytes: usize,
    pub(super) fields: usize,
}

/// Serves a connection until its end.
pub(super) async fn serve(stream: TcpStream, from: IpAddr, thread: &Arc<Thread>) {
    let _ = stream.set_nodelay(true);
    let worker = thread.current();
    let Some(entered) = worker.clients.enter(from) else {
        return turn_away(stream, &worker, "limits.client_connections");
    };
    let tenancy = Tenancy {
        client: Arc::clone(&entered.client),
        since: worker.clock.now(),
        requests: worker.requests,
    };
    let watch = Arc::new(Watch::new(tenancy, worker.runtime.clone(), worker.tasks.clone()));
    let vigils = &thread.vigils;
    let _enrolled = vigils.enrol(&watch);
    let limits = worker.head;
    let io = TokioIo::new(Watched { stream, watch: Arc::clone(&watch), bare_answer: None });
    let (for_service, thread) = (Arc::clone(&watch), Arc::clone(thread));
    let serving = Arc::clone(&worker);
    let service = service_fn(move |request| {
        thread.successor(&serving).serve(Arc::clone(&for_service), request)
    });
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(limits.bytes.max(8192))
        .max_headers(limits.fields)
        .half_close(false)
        .writev(false)
        .serve_connection(io, service);
    let mut is_registered = false;
    let mut is_closing = false;
    let end = poll_fn(|cx| {
        if !std::mem::replace(&mut is_registered, true) {
            watch.register(cx.waker());
        }
        loop {
            // Asked first: a step that begins in this poll would hide the call.
            let is_called = watch.is_called();
            // How else a connection ended is the client's concern: what it asked for was logged.
            if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(ended.map_or_else(End::of, |()| End::Silent));
            }
            if !is_called && !watch.is_called() {
                return Poll::Pending;
            }
            if vigils.abort.is_cancelled() {
                return Poll::Ready(End::Silent);
            }
            if vigils.is_overdue(&watch) {
                return Poll::Ready(End::Overdue);
            }
            if is_closing || !vigils.closes(&watch) {
                return Poll::Pending;
            }
            is_closing = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
    })
    .await;
    let Watched { stream, bare_answer, .. } = connection.into_parts().io.into_inner();
    let (code, detail) = match end {
        End::Overdue if watch.has_head_begun() => {
            (Code::RequestTimeout, "the request's head did not arrive in time")
        }
        End::Malformed if watch.is_between_requests() => in_words(bare_answer.unwrap_or_default()),
        End::Silent | End::Overdue | End::Malformed => return,
    };
    last_words::say(stream, &worker.refuse_head(code, detail)).await;
}

/// Tells a client, if not too many are being told already, that its connection is one too many.
pub(super) fn turn_away(stream: TcpStream, worker: &Arc<Worker>, limit: &'static str) {
    let problem = worker.refuse_connection(limit);
    if let Ok(place) = Arc::clone(&worker.last_words).try_acquire_owned() {
        worker.tasks.spawn(async move {
            last_words::say(stream, &problem).await;
            drop(place);
        });
    }
}

/// How a connection ended, as far as the client may have to be told.
enum End {
    Silent,
    Overdue,
    /// In a head that is malformed or not whole.
    Malformed,
}

impl End {
    fn of(error: hyper::Error) -> End {
        if error.is_parse() || error.is_incomplete_message() { End::Malformed } else { End::Silent }
    }
}

/// What hyper means by its bare answer; to some heads it has none.
const fn in_words(status: [u8; 3]) -> (Code, &'static str) {
    match &status {
        b"431" => (Code::HeadTooLarge, "the request's head is too large"),
        b"414" => (Code::HeadTooLarge, "the request's target is too long"),
        _ => (Code::InvalidRequest, "the request's head is not valid HTTP/1.1 (RFC 9112)"),
    }
}

/// The bytes of a connection, watched.
struct Watched {
    stream: TcpStream,
    watch: Arc<Watch>,
    /// The status of what hyper said to a head that it cannot read. That is the only thing that it
    /// writes while no request is in work; it is kept back, so that it can be said in words.
    bare_answer: Option<[u8; 3]>,
}

impl Watched {
    fn keep_back(&mut self, bare_answer: &[u8]) {
        let status = bare_answer.get(9..12).and_then(|status| status.try_into().ok());
        self.bare_answer.get_or_insert(status.unwrap_or_default());
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
            let written = Pin::new(&mut self.stream).poll_write(cx, data);
            self.watch.wrote(written.is_ready());
            return written;
        }
        self.keep_back(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.watch.is_serving() {
            let written = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
            self.watch.wrote(written.is_ready());
            return written;
        }
        let first = data.first().map_or(&[][..], |slice| slice);
        self.keep_back(first);
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
        if self.bare_answer.is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
