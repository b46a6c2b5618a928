//! The bytes of a client's connection: plain or TLS, and what was read of them too early.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// One branch for each read and write, and nothing boxed where there is no TLS.
pub(super) enum ClientStream {
    Plain(Unread),
    Tls(Box<TlsStream<Unread>>),
}

/// A socket, and bytes that were read from it to find out what it speaks.
pub(super) struct Unread {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Unread {
    pub(super) const fn new(socket: TcpStream, bytes: Vec<u8>) -> Unread {
        Unread { socket, bytes }
    }
}

impl ClientStream {
    pub(super) const fn is_plain(&self) -> bool {
        matches!(self, ClientStream::Plain(_))
    }

    /// Puts bytes back, to be read again. Only of plain text is anything read too early.
    pub(super) fn unread(&mut self, bytes: &[u8]) {
        if let ClientStream::Plain(stream) = self {
            stream.bytes.splice(0..0, bytes.iter().copied());
        }
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

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            ClientStream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_write(cx, data),
            ClientStream::Tls(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            ClientStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            ClientStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
