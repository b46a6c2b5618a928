//! A request on its way to an upstream, and whether a byte of it may have been written.
//!
//! The one thing that has to be right here: a request is tried again, or called "not forwarded",
//! only while no byte of it can have been written. hyper says so by handing the request back.
//! Written as a state machine and not as an `async fn`, so that it is small and can be moved: what
//! a client leaves behind in the middle goes on in a task of its own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;

use super::body::{BodyError, RequestBody};
use super::head;
use super::load::Turn;
use super::refusal::Refusal;
use super::upstream::{Answer, Connection, Got, Place, Upstream};
use super::vigil::{self, Stop};
use super::watch::Watch;
use crate::clock::{Boottime, Clock};
use crate::fences::{Permit, Right};

/// Connections that may turn out dead before one is opened anew.
const STALE_CONNECTIONS: usize = 8;

/// See the module.
pub(super) struct Sending {
    pub(super) watch: Arc<Watch>,
    pub(super) clock: Clock,
    /// When it set out.
    pub(super) now: Boottime,
    /// A byte of it may have been written.
    pub(super) is_sent: bool,
    /// Until when it may be sent at all.
    right: Option<Right>,
    /// It counts as under way, also when its client is gone.
    _turn: Turn,
    connections: usize,
    step: Step,
}

/// The answer's head, and the connection that its body will come on.
pub(super) type Answered = Result<(Response<Incoming>, Connection), Refusal>;

type Opening = dyn Future<Output = Result<(Connection, Request<RequestBody>), Refusal>> + Send;

enum Step {
    Connecting(Pin<Box<Opening>>),
    /// The request is with hyper.
    Sent(Connection, Pin<Box<Answer>>),
    Over,
}

impl Step {
    fn send(
        mut connection: Connection,
        right: Option<Right>,
        request: Request<RequestBody>,
    ) -> Step {
        connection.limit(right);
        let answer = connection.send(request);
        Step::Sent(connection, answer)
    }
}

impl Sending {
    /// Hands the request to a pooled connection, or begins to open one.
    pub(super) fn new(
        request: Request<RequestBody>,
        right: Option<Right>,
        upstream: Arc<Upstream>,
        watch: Arc<Watch>,
        clock: Clock,
        now: Boottime,
        turn: Turn,
    ) -> Sending {
        let (connections, step) = (0, Step::Over);
        let mut sending =
            Sending { watch, clock, now, is_sent: false, right, _turn: turn, connections, step };
        sending.try_next(request, upstream);
        sending
    }

    fn try_next(&mut self, request: Request<RequestBody>, upstream: Arc<Upstream>) {
        self.connections += 1;
        let got = Upstream::take(upstream, self.now);
        self.is_sent = false;
        self.step = match got {
            Ok(Got::Connection(connection)) if self.connections <= STALE_CONNECTIONS => {
                self.is_sent = true;
                Step::send(connection, self.right.clone(), request)
            }
            Ok(Got::Connection(connection)) => {
                Step::Connecting(Box::pin(open(connection.close_for_another(), request)))
            }
            Ok(Got::Place(place)) => Step::Connecting(Box::pin(open(place, request))),
            Err(upstream) => Step::Connecting(Box::pin(wait(upstream, request))),
        };
    }

    /// The answer's head, if it comes within the limit that is set on the watch and before
    /// `permit` is cut.
    pub(super) fn poll_in_time(
        &mut self,
        permit: Option<&Permit>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Answered, Stop>> {
        if let Poll::Ready(ended) = self.poll_answer(cx) {
            return Poll::Ready(Ok(ended));
        }
        let stop = vigil::stop(&self.watch, self.clock, permit);
        if stop.is_some() {
            // Closes the connection, before anybody hears that the request is over.
            self.step = Step::Over;
        }
        stop.map_or(Poll::Pending, |stop| Poll::Ready(Err(stop)))
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Answered> {
        loop {
            match &mut self.step {
                Step::Connecting(opening) => {
                    let (connection, request) = ready!(opening.as_mut().poll(cx))?;
                    self.is_sent = true;
                    self.step = Step::send(connection, self.right.clone(), request);
                }
                Step::Sent(_, answer) => {
                    let answered = ready!(answer.as_mut().poll(cx));
                    let Step::Sent(connection, _) = std::mem::replace(&mut self.step, Step::Over)
                    else {
                        unreachable!("it was just now")
                    };
                    match answered {
                        Ok(response) => return Poll::Ready(ended(response, connection)),
                        Err(failed) => self.try_again(failed, connection)?,
                    }
                }
                Step::Over => unreachable!("not polled after it was ready"),
            }
        }
    }

    /// Goes on with the next connection, if the request came back unsent from one that was used
    /// before: the upstream may have closed that meanwhile.
    fn try_again(
        &mut self,
        mut failed: TrySendError<Request<RequestBody>>,
        connection: Connection,
    ) -> Result<(), Refusal> {
        let Some(request) = failed.take_message() else {
            if connection.is_untouched() {
                self.is_sent = false;
                return Err(Refusal::UpstreamUnreachable(chain(failed.error())));
            }
            return Err(outcome_unknown(failed.error()));
        };
        self.is_sent = false;
        if !connection.is_reused {
            return Err(Refusal::UpstreamUnreachable(chain(failed.error())));
        }
        self.try_next(request, connection.close());
        Ok(())
    }
}

fn ended(mut response: Response<Incoming>, connection: Connection) -> Answered {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Refusal::OutcomeUnknown("the upstream switched protocols".into()));
    }
    // The connection is closed with it: nobody knows where its next answer begins.
    head::receive(response.version(), response.headers_mut())
        .map_err(|why| Refusal::OutcomeUnknown(why.into()))?;
    Ok((response, connection))
}

async fn wait(
    upstream: Arc<Upstream>,
    request: Request<RequestBody>,
) -> Result<(Connection, Request<RequestBody>), Refusal> {
    match Upstream::wait(upstream).await? {
        Got::Connection(connection) => Ok((connection, request)),
        Got::Place(place) => open(place, request).await,
    }
}

async fn open(
    place: Place,
    request: Request<RequestBody>,
) -> Result<(Connection, Request<RequestBody>), Refusal> {
    match Upstream::connect(place).await {
        Ok(connection) => Ok((connection, request)),
        Err(error) => Err(Refusal::UpstreamUnreachable(error.to_string())),
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

/// An error of hyper's with what caused it, which its own text does not say.
pub(super) fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
