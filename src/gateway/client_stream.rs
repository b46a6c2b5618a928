//! The bytes of a client's connection: plain or TLS, and what was read of them too early.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// Plain, or TLS. Nothing is boxed where there is no TLS.
pub(super) type ClientStream = Either<Unread, Box<TlsStream<Unread>>>;

/// A socket, and bytes that were read from it to find out what it speaks.
pub(super) struct Unread {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Unread {
    pub(super) const fn new(socket: TcpStream, bytes: Vec<u8>) -> Unread {
        Unread { socket, bytes }
    }

    /// Puts bytes back, to be read again.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        self.bytes.splice(0..0, bytes.iter().copied());
    }
}

impl AsyncRead for Unread {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, buffer);
        }
        let length = self.bytes.len().min(buffer.remaining());
        buffer.put_slice(&self.bytes[..length]);
        self.bytes.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Unread {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
