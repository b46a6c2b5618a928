//! The bytes of an upstream connection: whether all that was written has left this process, and
//! what becomes of the rest when the connection is closed early.
//!
//! A write that is cut must not reach the upstream later than its settle time. What hyper still
//! holds goes with the connection; what the kernel holds would be sent on for minutes to an upstream
//! that stands still. So a connection that ends without an orderly shutdown is reset, which throws the
//! kernel's queue away too; a killed process ends its connections in the same way.
//!
//! Where several instances share a store, the right to send ends with the instance's lease. The clock is
//! read right before each write to the kernel, so that a process that was suspended for longer sends
//! nothing when it wakes up. What the kernel had already it drops by itself after the settle time.
//!
//! TLS lies above this, so that what TLS still holds counts as not sent, and each record is checked for the
//! right before it goes to the kernel. On HTTP/2 a connection carries one request at a time, as one of HTTP/1.1 does: a
//! stream that is reset leaves the bytes before the reset in the kernel's queue, a connection that is reset does not.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::net::sockopt::{set_socket_linger, set_tcp_user_timeout};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::clock::Clock;
use crate::fences::Right;

/// See the module.
pub(super) struct UpstreamSocket {
    stream: TcpStream,
    clock: Clock,
    state: Arc<State>,
    /// The kernel was told how long it may keep what it cannot send.
    is_bounded: bool,
    /// Whether an orderly end lets the kernel send on what it has.
    is_orderly: bool,
}

#[derive(Default)]
struct State {
    is_dirty: AtomicBool,
    /// HTTP/2: a request was handed over, and its last frame was not written yet.
    is_under_way: AtomicBool,
    /// HTTP/2: something was written since that request was handed over.
    is_touched: AtomicBool,
    /// Whether there is a right below, so that the usual write takes no lock.
    is_limited: AtomicBool,
    right: Mutex<Option<Right>>,
}

/// What both ends of the line know of its socket: whether hyper holds bytes that it was not able to hand to
/// the kernel yet, and until when it may.
#[derive(Clone)]
pub(super) struct Dirty(Arc<State>);

impl UpstreamSocket {
    pub(super) fn new(stream: TcpStream, clock: Clock) -> io::Result<(UpstreamSocket, Dirty)> {
        stream.set_nodelay(true)?;
        stream.set_zero_linger()?;
        let state = Arc::new(State::default());
        let dirty = Dirty(Arc::clone(&state));
        Ok((UpstreamSocket { stream, clock, state, is_bounded: false, is_orderly: true }, dirty))
    }

    /// A connection of HTTP/2 is reset however it ends: it may end while a request is under way, as that of
    /// HTTP/1.1 does not.
    pub(super) fn end_with_reset(&mut self) {
        self.is_orderly = false;
    }

    fn check_right(&mut self) -> io::Result<()> {
        let right = self.state.right.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(Right { lease, settle }) = right else { return Ok(()) };
        if !self.is_bounded {
            let millis = u32::try_from(settle.as_millis()).unwrap_or(u32::MAX).max(1);
            set_tcp_user_timeout(&self.stream, millis)?;
            self.is_bounded = true;
        }
        if lease.is_live(self.clock.now()) {
            return Ok(());
        }
        Err(io::Error::other("the lease of this gateway instance in the fence store ran out"))
    }
}

impl Dirty {
    pub(super) fn is_dirty(&self) -> bool {
        self.0.is_dirty.load(Ordering::Acquire) || self.0.is_under_way.load(Ordering::Acquire)
    }

    /// HTTP/2: a request is handed over.
    pub(super) fn begins(&self) {
        self.0.is_touched.store(false, Ordering::Release);
        self.0.is_under_way.store(true, Ordering::Release);
    }

    /// HTTP/2: something is about to be written.
    pub(super) fn touched(&self) {
        self.0.is_touched.store(true, Ordering::Release);
    }

    /// HTTP/2: the last frame of the request was written; whether it was sent the socket tells.
    pub(super) fn ended(&self) {
        self.0.is_under_way.store(false, Ordering::Release);
    }

    /// HTTP/2: nothing at all was written since the request was handed over.
    pub(super) fn is_untouched(&self) -> bool {
        self.0.is_under_way.load(Ordering::Acquire) && !self.0.is_touched.load(Ordering::Acquire)
    }

    /// What is sent from now on is sent by this right; `None`: without limit.
    pub(super) fn limit(&self, right: Option<Right>) {
        let is_limited = right.is_some();
        if is_limited || self.0.is_limited.load(Ordering::Acquire) {
            *self.0.right.lock().unwrap_or_else(PoisonError::into_inner) = right;
            self.0.is_limited.store(is_limited, Ordering::Release);
        }
    }
}

impl AsyncRead for UpstreamSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for UpstreamSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.state.is_dirty.store(true, Ordering::Release);
        if self.state.is_limited.load(Ordering::Acquire) {
            self.check_right()?;
        }
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    /// hyper flushes only when its own buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.state.is_dirty.store(false, Ordering::Release);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An orderly end: what was written is meant to arrive.
        if self.is_orderly {
            set_socket_linger(&self.stream, None)?;
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
