//! The bytes of an upstream connection: whether all that was written has left this process, and
//! what becomes of the rest when the connection is closed early.
//!
//! A write that is cut must not reach the upstream later than its settle time. What hyper still
//! holds goes with the connection; what the kernel holds would be sent on for minutes to an upstream
//! that stands still. So a connection that ends without an orderly shutdown is reset, which throws the
//! kernel's queue away too; a killed process ends its connections in the same way.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// See the module.
pub(super) struct UpstreamSocket {
    stream: TcpStream,
    is_dirty: Arc<AtomicBool>,
}

/// Tells whether hyper holds bytes that it was not able to hand to the kernel yet.
#[derive(Clone)]
pub(super) struct Dirty(Arc<AtomicBool>);

impl UpstreamSocket {
    pub(super) fn new(stream: TcpStream) -> io::Result<(UpstreamSocket, Dirty)> {
        stream.set_nodelay(true)?;
        stream.set_zero_linger()?;
        let is_dirty = Arc::new(AtomicBool::new(false));
        Ok((UpstreamSocket { stream, is_dirty: Arc::clone(&is_dirty) }, Dirty(is_dirty)))
    }
}

impl Dirty {
    pub(super) fn is_dirty(&self) -> bool {
        self.0.load(Ordering::Acquire)
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
        self.is_dirty.store(true, Ordering::Release);
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    /// hyper flushes only when its own buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.is_dirty.store(false, Ordering::Release);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An orderly end: what was written is meant to arrive.
        set_socket_linger(&self.stream, None)?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
