//! An admitted write on its way, and what becomes of its permit.
//!
//! The permit lives until the final answer's head is here and the body is sent, or until the
//! outcome is in doubt. A client that disconnects ends neither.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Method, Response};
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::body::ResponseBody;
use super::refusal::Refusal;
use super::route::Route;
use super::sending::{Answered, Sending};
use super::socket::Dirty;
use super::upstream::Connection;
use super::vigil::Stop;
use crate::fences::{DoubtReason, Permit, Refused, Write};
use crate::spans::Open;
use crate::trace::TraceId;

/// How often a write whose connection is gone, or answered, looks whether it has to stop.
const LOOKS: Duration = Duration::from_millis(100);

/// Where a write came from, for the list of writes in doubt.
pub(super) struct Origin {
    pub(super) route: Arc<Route>,
    pub(super) method: Method,
    pub(super) trace_id: TraceId,
    /// Where somebody records it.
    pub(super) span: Option<Box<Open>>,
}

impl Origin {
    fn write(self, reason: DoubtReason) -> Write {
        Write {
            route: Arc::clone(&self.route.name),
            upstream: Arc::clone(&self.route.upstream_name),
            method: self.method.to_string(),
            trace_id: Some(self.trace_id),
            reason,
        }
    }
}

/// Sends a request that no fence concerns.
pub(super) async fn pass(mut sending: Sending) -> Result<Response<ResponseBody>, Refusal> {
    match poll_fn(|cx| sending.poll_in_time(None, cx)).await {
        Ok(answer) => answer.map(into_response),
        Err(_) if sending.is_sent => Err(Refusal::UpstreamTimeout),
        Err(_) => Err(Refusal::UpstreamUnreachable("it took too long".into())),
    }
}

/// An admitted write on its way: a future of its answer. Dropped before it is done, it goes on as a
/// task of its own; the usual write is awaited where it is and costs no task.
pub(super) struct Forward(Option<InFlight>);

/// What goes on alone when the client is gone.
struct InFlight {
    sending: Sending,
    permit: Permit,
    origin: Origin,
    upload: Option<oneshot::Receiver<()>>,
}

impl Forward {
    /// `upload` tells of the body that is with `sending`.
    pub(super) fn new(
        sending: Sending,
        permit: Permit,
        origin: Origin,
        upload: Option<oneshot::Receiver<()>>,
    ) -> Forward {
        Forward(Some(InFlight { sending, permit, origin, upload }))
    }
}

impl Future for Forward {
    type Output = Result<Response<ResponseBody>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let write = self.0.as_mut().expect("not polled after it was ready");
        let ended = ready!(write.poll_ended(cx));
        Poll::Ready(self.0.take().expect("it was polled just now").end(ended))
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        if let Some(mut write) = self.0.take() {
            let watch = Arc::clone(&write.sending.watch);
            let (tasks, runtime) = (&watch.tasks, &watch.runtime);
            // The watchman looks at connections, and this one is gone.
            let alone = async move {
                loop {
                    tokio::select! {
                        ended = poll_fn(|cx| write.poll_ended(cx)) => {
                            let _ = write.end(ended);
                            return;
                        }
                        () = tokio::time::sleep(LOOKS) => {}
                    }
                    write.sending.watch.call();
                }
            };
            tasks.spawn_on(alone, runtime);
        }
    }
}

impl InFlight {
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, Stop>> {
        self.sending.poll_in_time(Some(&self.permit), cx)
    }

    fn end(self, ended: Result<Answered, Stop>) -> Result<Response<ResponseBody>, Refusal> {
        let InFlight { sending, permit, mut origin, upload } = self;
        let span = origin.span.take();
        let is_cut = matches!(ended, Err(Stop::Cut));
        let failed = match ended {
            Ok(Ok((response, connection))) => {
                if let Some(mut span) = span {
                    span.set(|span| {
                        span.outcome = "answered";
                        span.status = Some(response.status().as_u16());
                    });
                }
                end_of_answered(permit, upload, origin, &connection, &sending);
                return Ok(into_response((response, connection)));
            }
            Ok(Err(refusal)) => refusal,
            Err(Stop::Cut) => {
                let why = "it was cut off for a newer token's write, or for the end of the gateway";
                Refusal::OutcomeUnknown(why.into())
            }
            Err(Stop::Late) => Refusal::UpstreamTimeout,
        };
        if sending.is_sent {
            let reason = if is_cut { DoubtReason::Cut } else { reason(&failed) };
            permit.in_doubt(origin.write(reason));
            end_span(span, &failed, "unknown");
            return Err(failed);
        }
        permit.over();
        let failed = match failed {
            Refusal::UpstreamTimeout => Refusal::UpstreamUnreachable("it took too long".into()),
            Refusal::OutcomeUnknown(_) => Refusal::Admission(Refused::Draining),
            refusal => refusal,
        };
        end_span(span, &failed, "not_forwarded");
        Err(failed)
    }
}

fn end_span(span: Option<Box<Open>>, refusal: &Refusal, outcome: &'static str) {
    if let Some(mut span) = span {
        span.set(|span| {
            span.outcome = outcome;
            span.code = Some(refusal.code().as_str());
            span.status = Some(refusal.code().status().as_u16());
        });
    }
}

const fn reason(refusal: &Refusal) -> DoubtReason {
    match refusal {
        Refusal::UpstreamTimeout => DoubtReason::UpstreamTimeout,
        Refusal::BodyTooLarge { .. } => DoubtReason::BodyTooLarge,
        _ => DoubtReason::UpstreamOutcomeUnknown,
    }
}

/// An upstream may answer while the body is still on its way to it; what it does with the rest
/// nobody knows until it has it. So the write is over only when all of it has left this process.
fn end_of_answered(
    permit: Permit,
    mut upload: Option<oneshot::Receiver<()>>,
    origin: Origin,
    connection: &Connection,
    sending: &Sending,
) {
    let is_handed_over = match upload.as_mut().map(oneshot::Receiver::try_recv) {
        None | Some(Ok(())) => true,
        Some(Err(TryRecvError::Empty)) => false,
        // Not to be asked again: the rest of the body went with whoever had it.
        Some(Err(TryRecvError::Closed)) => {
            connection.closer().abort();
            return permit.in_doubt(origin.write(DoubtReason::AnsweredBeforeTheBodyWasSent));
        }
    };
    if is_handed_over && !connection.is_dirty() {
        return permit.over();
    }
    let (close, dirty) = (connection.closer(), connection.dirty());
    let upload = upload.filter(|_| !is_handed_over);
    let (clock, until) = (sending.clock, sending.now + origin.route.timeout);
    sending.watch.tasks.spawn(async move {
        let must_stop = || permit.is_cut() || clock.now() >= until;
        // A connection that ended took with it what it still held.
        let is_lost = || close.is_finished() && dirty.is_dirty();
        if all_sent(upload, &dirty, || must_stop() || is_lost()).await {
            permit.over();
        } else {
            close.abort();
            permit.in_doubt(origin.write(DoubtReason::AnsweredBeforeTheBodyWasSent));
        }
    });
}

/// Waits until the body was handed over and has left this process; `false` if it never does.
async fn all_sent(
    upload: Option<oneshot::Receiver<()>>,
    dirty: &Dirty,
    must_stop: impl Fn() -> bool,
) -> bool {
    if let Some(mut upload) = upload {
        loop {
            tokio::select! {
                told = &mut upload => if told.is_ok() { break } else { return false },
                () = tokio::time::sleep(LOOKS) => if must_stop() { return false },
            }
        }
    }
    while dirty.is_dirty() {
        tokio::time::sleep(LOOKS).await;
        if must_stop() {
            return false;
        }
    }
    true
}

fn into_response(
    (response, connection): (Response<Incoming>, Connection),
) -> Response<ResponseBody> {
    response.map(|body| ResponseBody::upstream(body, connection))
}
