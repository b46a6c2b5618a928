//! Connections to an upstream, one pool for each worker.
//!
//! A connection is owned by whoever uses it and closed when dropped, unless it was given back with
//! [`Connection::reuse`]: so a write that is cut takes its connection with it. hyper-util's pooled
//! client is not used, because it hides both that and whether a byte was written.
//!
//! A request has a [`Place`] before it has a connection, and keeps it for as long: places bound the connections,
//! and those who wait for one are bounded too. A new connection is opened only if none is unused, so there are
//! never more of both than places.

mod pool;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use self::pool::{Pool, Taken};
use super::body::RequestBody;
use super::load::Limited;
use super::refusal::Refusal;
use super::socket::{Dirty, UpstreamSocket};
use super::{quiet, upstream_http2, upstream_stream};
use crate::clock::{Boottime, Clock};
use crate::config::{self, Protocol};
use crate::fences::Right;
use crate::tls::ClientTls;
use crate::unknown_length;

/// For what is read ahead of an answer that its client does not take, and for its head. There may be three such
/// buffers for each connection: with hyper, on the way, and with the client's connection.
const BUFFER_BYTES: usize = 128 * 1024;

/// How often a connection that goes on alone is looked at.
const LOOKS: Duration = Duration::from_millis(100);

pub(super) struct Upstream {
    pub(super) authority: String,
    pub(super) credential: Option<config::UpstreamCredential>,
    tls: Option<Arc<ClientTls>>,
    protocol: Protocol,
    connect_timeout: Duration,
    timeout: Duration,
    idle: Duration,
    clock: Clock,
    runtime: Handle,
    pool: Pool,
}

/// The right to one connection. Dropped without it, it goes to whoever waits.
pub(super) struct Place(Option<Arc<Upstream>>);

/// An open connection and the task that drives it.
struct Line {
    sender: Sender,
    task: AbortHandle,
    dirty: Dirty,
    /// The task goes on without the line, and closes the connection when it has no more to do.
    is_detached: bool,
}

/// Takes requests. Of both kinds of connection one carries one request at a time: see [`super::socket`].
enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

/// The answer to a request that is with hyper.
pub(super) type Answer =
    dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>> + Send;

impl Sender {
    fn is_ready(&self) -> bool {
        match self {
            Sender::Http1(sender) => sender.is_ready(),
            Sender::Http2(sender) => sender.is_ready(),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.is_detached {
            self.task.abort();
        }
    }
}

/// A connection in use.
pub(super) struct Connection {
    line: Line,
    place: Place,
    /// When it was taken into use. Its rest is counted from then, which is early and costs no clock.
    since: Boottime,
    /// It carried a request before, so the upstream may be closing it at this moment.
    pub(super) is_reused: bool,
}

impl Upstream {
    pub(super) fn new(
        config: &config::Upstream,
        tls: Option<Arc<ClientTls>>,
        clock: Clock,
        runtime: Handle,
    ) -> Upstream {
        Upstream {
            authority: config.authority.clone(),
            credential: config.credential.clone(),
            tls,
            protocol: config.protocol,
            connect_timeout: config.connect_timeout,
            timeout: config.timeout,
            idle: config.idle,
            clock,
            runtime,
            pool: Pool::new(config.connections, config.waiting),
        }
    }

    /// An unused connection that is still good, or the right to open one, if neither has to be waited for.
    pub(super) fn take(upstream: Arc<Upstream>, now: Boottime) -> Result<Got, Arc<Upstream>> {
        match upstream.pool.take(now - upstream.idle) {
            Some(taken) => Ok(Got::new(taken, Place(Some(upstream)), now)),
            None => Err(upstream),
        }
    }

    /// The same, after waiting for it.
    ///
    /// # Errors
    /// Too many wait already, or it took as long as connecting may.
    pub(super) async fn wait(upstream: Arc<Upstream>) -> Result<Got, Limited> {
        let waited = {
            let oldest = || upstream.clock.now() - upstream.idle;
            tokio::time::timeout(upstream.connect_timeout, upstream.pool.wait(oldest)).await
        };
        match waited {
            Ok(Some(taken)) => {
                let now = upstream.clock.now();
                Ok(Got::new(taken, Place(Some(upstream)), now))
            }
            Ok(None) | Err(_) => Err(Limited::upstream("upstream.connections")),
        }
    }

    /// Closes the unused connections, and from now on those that come back: nothing new is sent to it.
    pub(super) fn retire(&self) {
        self.pool.retire();
    }

    /// Puts a request into the form that the upstream's protocol has.
    ///
    /// # Errors
    /// It has no such form.
    pub(super) fn address(&self, request: &mut Request<RequestBody>) -> Result<(), Refusal> {
        match self.protocol {
            Protocol::Http1 => {
                let length = request.body().size_hint();
                unknown_length::announce(request.headers_mut(), &length);
                Ok(())
            }
            Protocol::Http2 => {
                let scheme = if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
                upstream_http2::address(request, scheme)
            }
        }
    }

    pub(super) async fn connect(place: Place) -> io::Result<Connection> {
        let upstream = place.upstream();
        let line = tokio::time::timeout(upstream.connect_timeout, upstream.open())
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connecting took too long"))??;
        let since = upstream.clock.now();
        Ok(Connection { line, place, since, is_reused: false })
    }

    async fn open(&self) -> io::Result<Line> {
        let stream = TcpStream::connect(&self.authority).await?;
        let (mut socket, dirty) = UpstreamSocket::new(stream, self.clock)?;
        if self.protocol == Protocol::Http2 {
            socket.end_with_reset();
        }
        match &self.tls {
            None => self.begin(socket, dirty).await,
            Some(tls) => self.begin(upstream_stream::secure(socket, tls).await?, dirty).await,
        }
    }

    /// Begins to speak on it.
    async fn begin<S>(&self, stream: S, dirty: Dirty) -> io::Result<Line>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, task) = match self.protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::Builder::new()
                    .writev(false)
                    .max_buf_size(BUFFER_BYTES)
                    .handshake(TokioIo::new(stream))
                    .await
                    .map_err(io::Error::other)?;
                let task = self.runtime.spawn(async move {
                    // How a request on it ended is told to whoever sent it.
                    let _ = quiet::work(connection).await;
                });
                (Sender::Http1(sender), task)
            }
            Protocol::Http2 => {
                let (sender, drive) = upstream_http2::begin(stream, dirty.clone()).await?;
                (Sender::Http2(sender), self.runtime.spawn(drive))
            }
        };
        Ok(Line { sender, task: task.abort_handle(), dirty, is_detached: false })
    }
}

/// What a request has got to be sent on.
pub(super) enum Got {
    Connection(Connection),
    /// None was unused.
    Place(Place),
}

impl Got {
    fn new(taken: Taken, place: Place, since: Boottime) -> Got {
        match taken {
            Taken::Line(line) => {
                Got::Connection(Connection { line, place, since, is_reused: true })
            }
            Taken::Place => Got::Place(place),
        }
    }
}

impl Place {
    fn upstream(&self) -> &Arc<Upstream> {
        self.0.as_ref().expect("only what consumes the place takes it out")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(upstream) = self.0.take() {
            upstream.pool.give_back(None);
        }
    }
}

impl Connection {
    /// Hands a request over.
    pub(super) fn send(&mut self, request: Request<RequestBody>) -> Pin<Box<Answer>> {
        match &mut self.line.sender {
            Sender::Http1(sender) => Box::pin(sender.try_send_request(request)),
            Sender::Http2(sender) => {
                self.line.dirty.begins();
                Box::pin(sender.try_send_request(request))
            }
        }
    }

    /// Provably no byte was written since a request was handed over, and none will be once this is dropped.
    pub(super) fn is_untouched(&self) -> bool {
        self.line.dirty.is_untouched()
    }

    /// What is sent from now on is sent by this right; `None`: without limit.
    pub(super) fn limit(&self, right: Option<Right>) {
        self.line.dirty.limit(right);
    }

    /// Closes the connection from elsewhere.
    pub(super) fn closer(&self) -> AbortHandle {
        self.line.task.clone()
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.line.dirty.is_dirty()
    }

    /// Tells whether part of what was sent is still in this process.
    pub(super) fn dirty(&self) -> Dirty {
        self.line.dirty.clone()
    }

    /// Closes the connection, and keeps its place for another one.
    pub(super) fn close_for_another(self) -> Place {
        self.place
    }

    /// Closes the connection, and names its upstream for another one.
    pub(super) fn close(self) -> Arc<Upstream> {
        Arc::clone(self.place.upstream())
    }

    /// Lets a connection go on that is closed, or was answered before the request's body was sent. It keeps its place
    /// until it ends, and has as long for that as the upstream has for an answer.
    fn finish_alone(task: AbortHandle, place: Place) {
        let upstream = place.upstream();
        let (clock, until) = (upstream.clock, upstream.clock.now() + upstream.timeout);
        upstream.runtime.clone().spawn(async move {
            while !task.is_finished() && clock.now() < until {
                tokio::time::sleep(LOOKS).await;
            }
            task.abort();
            drop(place);
        });
    }

    /// Gives the connection back after an answer was read to its end.
    pub(super) fn reuse(self) {
        let Connection { mut line, mut place, since, .. } = self;
        if !line.sender.is_ready() || line.dirty.is_dirty() {
            line.is_detached = true;
            Connection::finish_alone(line.task.clone(), place);
            return;
        }
        if let Some(upstream) = place.0.take() {
            upstream.pool.give_back(Some((since, line)));
        }
    }
}
