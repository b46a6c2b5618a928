//! Sending a request upstream, and knowing afterwards what may have happened to it.
//!
//! The one thing that has to be right here: a write is tried again, or called "not forwarded", only
//! while no byte of it can have been written. hyper says so by handing the request back.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use super::body::{BodyError, RequestBody, ResponseBody};
use super::refusal::Refusal;
use super::route::Route;
use super::socket::{Dirty, Right};
use super::upstream::{Connection, Upstream};
use super::vigil::{Stop, within};
use super::watch::Watch;
use crate::clock::{Boottime, Clock};
use crate::fences::{Permit, Refused, Write};
use crate::store::InstanceLease;
use crate::trace::TraceId;

/// How often a write whose connection is gone, or answered, looks whether it has to stop.
const LOOKS: Duration = Duration::from_millis(100);
/// Connections that may turn out dead before one is opened anew.
const STALE_CONNECTIONS: usize = 8;

/// Where a write came from, for the list of writes in doubt.
pub(super) struct Origin {
    pub(super) route: Arc<Route>,
    pub(super) method: Method,
    pub(super) trace_id: TraceId,
}

impl Origin {
    fn write(self, reason: &'static str) -> Write {
        Write {
            route: Arc::clone(&self.route.name),
            upstream: Arc::clone(&self.route.upstream_name),
            method: self.method.to_string(),
            trace_id: self.trace_id.to_string(),
            reason,
        }
    }
}

/// A request on its way to an upstream.
pub(super) struct Sending {
    pub(super) upstream: Arc<Upstream>,
    /// Taken while it is with hyper.
    pub(super) request: Option<Request<RequestBody>>,
    pub(super) watch: Arc<Watch>,
    pub(super) clock: Clock,
    /// When it set out.
    pub(super) now: Boottime,
    /// A byte of it may have been written.
    pub(super) is_sent: bool,
}

/// Sends a request that no fence concerns.
pub(super) async fn pass(sending: &mut Sending) -> Result<Response<ResponseBody>, Refusal> {
    match sending.send_in_time(None).await {
        Ok(answer) => answer.map(into_response),
        Err(_) if sending.is_sent => Err(Refusal::UpstreamTimeout),
        Err(_) => Err(Refusal::UpstreamUnreachable("it took too long".into())),
    }
}

/// Sends an admitted write. The permit lives until the final answer's head is here and the body
/// is sent, or until the outcome is in doubt.
pub(super) async fn forward(
    sending: &mut Sending,
    permit: Permit,
    origin: Origin,
) -> Result<Response<ResponseBody>, Refusal> {
    let upload = sending.request.as_mut().and_then(|request| request.body_mut().on_sent());
    let failed = match sending.send_in_time(Some(&permit)).await {
        Ok(Ok((response, connection))) => {
            end_of_answered(permit, upload, origin, &connection, sending);
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
        permit.in_doubt(origin.write(reason(&failed)));
        return Err(failed);
    }
    permit.over();
    Err(match failed {
        Refusal::UpstreamTimeout => Refusal::UpstreamUnreachable("it took too long".into()),
        Refusal::OutcomeUnknown(_) => Refusal::Admission(Refused::Draining),
        refusal => refusal,
    })
}

const fn reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::UpstreamTimeout => "upstream_timeout",
        Refusal::BodyTooLarge { .. } => "body_too_large",
        _ => "upstream_outcome_unknown",
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
    let is_handed_over = upload.as_mut().is_none_or(|upload| upload.try_recv().is_ok());
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
            permit.in_doubt(origin.write("answered_before_the_body_was_sent"));
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

impl Sending {
    async fn send_in_time(
        &mut self,
        permit: Option<&Permit>,
    ) -> Result<Result<(Response<Incoming>, Connection), Refusal>, Stop> {
        let Sending { upstream, request, watch, clock, now, is_sent } = self;
        let right = permit.and_then(Permit::right);
        let sending = pin!(Sending::send(upstream, request, right, *now, is_sent));
        within(watch, *clock, permit, sending).await
    }

    /// Sends on a pooled connection or a new one.
    async fn send(
        upstream: &Arc<Upstream>,
        waiting: &mut Option<Request<RequestBody>>,
        right: Option<(Arc<InstanceLease>, Duration)>,
        now: Boottime,
        is_sent: &mut bool,
    ) -> Result<(Response<Incoming>, Connection), Refusal> {
        for attempt in 0.. {
            let Some(request) = waiting.take() else { break };
            let is_pool_tried = attempt < STALE_CONNECTIONS;
            let pooled = is_pool_tried.then(|| upstream.pooled(now)).flatten();
            let mut connection = match pooled {
                Some(connection) => connection,
                // Boxed, so that the usual request does not carry the room for it along.
                None => Box::pin(upstream.connect())
                    .await
                    .map_err(|error| Refusal::UpstreamUnreachable(error.to_string()))?,
            };
            connection.limit(right.clone().map(|(lease, settle)| Right { lease, settle }));
            *is_sent = true;
            let mut failed = match connection.sender().try_send_request(request).await {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Err(Refusal::OutcomeUnknown("the upstream switched protocols".into()));
                }
                Ok(response) => return Ok((response, connection)),
                Err(failed) => failed,
            };
            *waiting = failed.take_message();
            if waiting.is_none() {
                return Err(outcome_unknown(failed.error()));
            }
            *is_sent = false;
            if !connection.is_reused {
                return Err(Refusal::UpstreamUnreachable(chain(failed.error())));
            }
        }
        Err(Refusal::UpstreamUnreachable("no connection stayed open".into()))
    }
}

fn outcome_unknown(error: &hyper::Error) -> Refusal {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref());
    match cause {
        Some(BodyError::TooLarge(limit_bytes)) => {
            Refusal::BodyTooLarge { limit_bytes: *limit_bytes, sent: true }
        }
        Some(BodyError::Paused | BodyError::Broken(_)) => {
            Refusal::OutcomeUnknown(format!("the request's body broke off ({})", chain(error)))
        }
        None => Refusal::OutcomeUnknown(format!("the upstream broke off ({})", chain(error))),
    }
}

fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn into_response(
    (response, connection): (Response<Incoming>, Connection),
) -> Response<ResponseBody> {
    response.map(|body| ResponseBody::upstream(body, connection))
}

/// A future that nobody's disconnect ends: dropped before it is done, it goes on as a task of its
/// own.
///
/// The usual write is awaited where it is and costs no task.
pub(super) struct Detach<F: Future<Output: Send> + Send + 'static> {
    future: Option<Pin<Box<F>>>,
    watch: Arc<Watch>,
}

impl<F: Future<Output: Send> + Send + 'static> Detach<F> {
    pub(super) fn new(future: F, watch: Arc<Watch>) -> Detach<F> {
        Detach { future: Some(Box::pin(future)), watch }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Detach<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.future.as_mut().expect("not polled after it was ready");
        let ready = future.as_mut().poll(cx);
        if ready.is_ready() {
            self.future = None;
        }
        ready
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Detach<F> {
    fn drop(&mut self) {
        if let Some(mut future) = self.future.take() {
            let watch = Arc::clone(&self.watch);
            // The watchman looks at connections, and this one is gone.
            let alone = async move {
                loop {
                    tokio::select! {
                        _ = &mut future => return,
                        () = tokio::time::sleep(LOOKS) => watch.call(),
                    }
                }
            };
            self.watch.tasks.spawn_on(alone, &self.watch.runtime);
        }
    }
}
