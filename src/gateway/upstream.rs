//! Connections to an upstream, one pool for each worker.
//!
//! A connection is owned by whoever uses it and closed when dropped, unless it was given back with
//! [`Connection::reuse`]: so a write that is cut takes its connection with it. hyper-util's pooled
//! client is not used, because it hides both that and whether a byte was written.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::body::RequestBody;
use super::socket::{Dirty, UpstreamSocket};
use crate::clock::{Boottime, Clock};
use crate::config;
use crate::fences::Right;

/// Unused connections beyond this are closed.
const POOL_CONNECTIONS: usize = 512;

pub(super) struct Upstream {
    pub(super) authority: String,
    pub(super) credential: Option<config::UpstreamCredential>,
    connect_timeout: Duration,
    idle: Duration,
    clock: Clock,
    runtime: Handle,
    /// The least recently used one first.
    pool: Mutex<VecDeque<(Boottime, Line)>>,
}

/// An open connection and the task that drives it.
struct Line {
    sender: SendRequest<RequestBody>,
    task: AbortHandle,
    dirty: Dirty,
    /// The task goes on without the line, and closes the connection when it has no more to do.
    is_detached: bool,
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
    upstream: Arc<Upstream>,
    /// When it was taken into use. Its rest is counted from then, which is early and costs no clock.
    since: Boottime,
    /// It carried a request before, so the upstream may be closing it at this moment.
    pub(super) is_reused: bool,
}

impl Upstream {
    pub(super) fn new(config: &config::Upstream, clock: Clock, runtime: Handle) -> Upstream {
        Upstream {
            authority: config.authority.clone(),
            credential: config.credential.clone(),
            connect_timeout: config.connect_timeout,
            idle: config.idle,
            clock,
            runtime,
            pool: Mutex::default(),
        }
    }

    /// An unused connection that is still good.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn pooled(
        upstream: Arc<Upstream>,
        now: Boottime,
    ) -> Result<Connection, Arc<Upstream>> {
        match upstream.take(now) {
            Some(line) => Ok(Connection { line, upstream, since: now, is_reused: true }),
            None => Err(upstream),
        }
    }

    fn take(&self, now: Boottime) -> Option<Line> {
        let oldest = now - self.idle;
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        while pool.front().is_some_and(|(since, _)| *since < oldest) {
            pool.pop_front();
        }
        while let Some((_, line)) = pool.pop_back() {
            if line.sender.is_ready() {
                return Some(line);
            }
        }
        None
    }

    pub(super) async fn connect(upstream: Arc<Upstream>) -> io::Result<Connection> {
        let connect = TcpStream::connect(&upstream.authority);
        let stream = tokio::time::timeout(upstream.connect_timeout, connect)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connecting took too long"))??;
        let (socket, dirty) = UpstreamSocket::new(stream, upstream.clock)?;
        let (sender, connection) = Builder::new()
            .writev(false)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(io::Error::other)?;
        let task = upstream.runtime.spawn(async move {
            // How a request on it ended is told to whoever sent it.
            let _ = connection.await;
        });
        let line = Line { sender, task: task.abort_handle(), dirty, is_detached: false };
        let since = upstream.clock.now();
        Ok(Connection { line, upstream, since, is_reused: false })
    }
}

impl Connection {
    pub(super) fn sender(&mut self) -> &mut SendRequest<RequestBody> {
        &mut self.line.sender
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

    /// Closes the connection, and names its upstream for another one.
    pub(super) fn close(self) -> Arc<Upstream> {
        self.upstream
    }

    /// Gives the connection back after an answer was read to its end.
    pub(super) fn reuse(self) {
        let Connection { mut line, upstream, since, .. } = self;
        if !line.sender.is_ready() || line.dirty.is_dirty() {
            // Closed, or answered before the request's body was sent, which goes on.
            line.is_detached = true;
            return;
        }
        let mut pool = upstream.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < POOL_CONNECTIONS {
            pool.push_back((since, line));
        }
    }
}
