//! One client connection.
//!
//! hyper reads and writes HTTP. Added here is what it leaves open: strictness ([`Framed`]), a bound on how
//! long a head may take that costs nothing per request, and words in place of the answers that hyper
//! makes by itself (to a malformed or oversized head), which are a bare status. HTTP/2 has a module of its own.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;

use super::client::Client;
use super::client_stream::{ClientStream, Unread};
use super::door::Arrived;
use super::framing::{Framed, Verdict, Violation};
use super::service::Worker;
use super::threads::Thread;
use super::vigil::Vigils;
use super::watch::{Tenancy, Watch};
use super::watched::{Left, Watched};
use super::{http2, last_words, quiet};
use crate::problem::Code;

/// What bounds a request's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    pub(super) bytes: usize,
    pub(super) fields: usize,
    /// Requests at the same time on one HTTP/2 connection.
    pub(super) streams: u32,
    /// Requests that a client may take back on one, see [`http2`].
    pub(super) resets: usize,
}

/// Serves a connection until its end.
pub(super) async fn serve(stream: Unread, address: SocketAddr, thread: &Arc<Thread>) {
    let worker = thread.current();
    // Before the handshake: who only begins many of them has no more places than others.
    let Some(entered) = worker.clients.enter(address.ip()) else {
        return turn_away(stream, &worker, "limits.client_connections");
    };
    let opening = worker.door.open(stream, address, &thread.vigils.closing);
    let Some(Arrived { stream, client, is_http2 }) = opening.await else { return };
    let tenancy = Arc::new(Tenancy {
        client: Arc::clone(&entered.client),
        since: worker.clock.now(),
        requests: worker.requests,
    });
    let client = Arc::new(client);
    let stream = if is_http2 {
        stream
    } else {
        match serve_http1(stream, &client, Arc::clone(&tenancy), &worker, thread).await {
            Some(stream) => stream,
            None => return,
        }
    };
    http2::serve(stream, client, tenancy, worker, thread).await;
}

/// Serves HTTP/1.1 until the connection's end, or gives the stream back when it turns out to speak HTTP/2.
async fn serve_http1(
    stream: ClientStream,
    client: &Arc<Client>,
    tenancy: Arc<Tenancy>,
    worker: &Arc<Worker>,
    thread: &Arc<Thread>,
) -> Option<ClientStream> {
    let (limits, vigils) = (worker.head, &thread.vigils);
    let (runtime, tasks) = (worker.runtime.clone(), worker.tasks.clone());
    let watch = Arc::new(Watch::new(Arc::clone(client), tenancy, runtime, tasks));
    let _enrolled = vigils.enrol(&watch);
    let watched = Watched::new(stream, Arc::clone(&watch));
    let io = TokioIo::new(Framed::new(watched, &watch, limits.bytes));
    let (for_service, thread) = (Arc::clone(&watch), Arc::clone(thread));
    let serving = Arc::clone(worker);
    let service = service_fn(move |request| {
        thread.successor(&serving).serve(Arc::clone(&for_service), request)
    });
    // The one place where an HTTP/1 connection is made of bytes.
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(limits.bytes.max(8192))
        .max_headers(limits.fields)
        .half_close(false)
        .writev(false)
        .serve_connection(io, service);
    let end = until_end(Pin::new(&mut connection), &watch, vigils).await;
    let (watched, verdict) = connection.into_parts().io.into_inner().into_parts();
    let (stream, bare_answer) = match watched.into_left() {
        Left::Http2(stream) => return Some(stream),
        Left::Http1 { stream, bare_answer } => (stream, bare_answer),
    };
    let problem = match (verdict, end) {
        (Verdict::HeadRefused(violation), _) => worker.refuse_head(code_of(violation), &violation),
        (Verdict::BodyRefused, _) => {
            last_words::hear_out(stream).await;
            return None;
        }
        (Verdict::Clean, End::Overdue) if watch.has_head_begun() => {
            worker.refuse_head(Code::RequestTimeout, &"the request's head did not arrive in time")
        }
        (Verdict::Clean, End::Malformed) if watch.is_between_requests() => {
            let (code, detail) = in_words(bare_answer.unwrap_or_default());
            worker.refuse_head(code, &detail)
        }
        (Verdict::Clean, End::Silent | End::Overdue | End::Malformed) => return None,
    };
    last_words::say(stream, &problem).await;
    None
}

/// A connection of hyper's, of whichever HTTP.
pub(super) trait Serving: Future<Output = hyper::Result<()>> {
    /// Ends it after the requests in work.
    fn shut_down(self: Pin<&mut Self>);

    /// What to poll it with in this task.
    fn waker(task: &Waker) -> Waker {
        task.clone()
    }
}

/// Works on a connection until it ends, has used up its time, or the gateway closes.
pub(super) async fn until_end<C: Serving>(
    mut connection: Pin<&mut C>,
    watch: &Watch,
    vigils: &Vigils,
) -> End {
    let mut waker = None;
    let mut is_closing = false;
    poll_fn(|cx| {
        let waker = waker.get_or_insert_with(|| {
            watch.register(cx.waker());
            C::waker(cx.waker())
        });
        let cx = &mut Context::from_waker(waker);
        loop {
            // Asked first: a step that begins in this poll would hide the call.
            let is_called = watch.is_called();
            // How else a connection ended is the client's concern: what it asked for was logged.
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended.map_or_else(End::of, |()| End::Silent));
            }
            if !is_called && !watch.is_called() {
                return Poll::Pending;
            }
            if vigils.abort.is_cancelled() {
                return Poll::Ready(End::Silent);
            }
            if vigils.is_overdue(watch) {
                return Poll::Ready(End::Overdue);
            }
            if is_closing || !vigils.closes(watch) {
                return Poll::Pending;
            }
            is_closing = true;
            connection.as_mut().shut_down();
        }
    })
    .await
}

impl<I, S> Serving for http1::Connection<I, S>
where
    http1::Connection<I, S>: Future<Output = hyper::Result<()>>,
    S: HttpService<Incoming>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S::ResBody: Body + 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }

    fn waker(task: &Waker) -> Waker {
        quiet::waker(task)
    }
}

/// Tells a client, if not too many are being told already, that its connection is one too many. Over TLS it is
/// only closed: it has not come through the door.
pub(super) fn turn_away(stream: Unread, worker: &Arc<Worker>, limit: &'static str) {
    let problem = worker.refuse_connection(limit);
    if worker.door.tls.is_some() {
        return;
    }
    if let Ok(place) = Arc::clone(&worker.last_words).try_acquire_owned() {
        worker.tasks.spawn(async move {
            last_words::say(ClientStream::Left(stream), &problem).await;
            drop(place);
        });
    }
}

/// How a connection ended, as far as the client may have to be told.
pub(super) enum End {
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

const fn code_of(violation: Violation) -> Code {
    match violation {
        Violation::Fragment => Code::UnresolvableResource,
        Violation::HeadTooLarge => Code::HeadTooLarge,
        _ => Code::InvalidRequest,
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
