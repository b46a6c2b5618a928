//! The bytes of an upstream connection: plain or TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::frames::Frames;
use super::socket::{Dirty, UpstreamSocket};
use crate::tls::{ClientTls, H2};

/// One branch for each read and write, and nothing boxed where there is no TLS.
pub(super) enum UpstreamStream {
    Plain(UpstreamSocket),
    Tls(Box<TlsStream<UpstreamSocket>>),
}

impl UpstreamStream {
    /// Leads a connection through the TLS handshake, if there is to be one.
    ///
    /// # Errors
    /// It failed, or the upstream does not speak the HTTP that it is configured to.
    pub(super) async fn open(socket: UpstreamSocket, tls: Option<&ClientTls>) -> io::Result<Self> {
        let Some(tls) = tls else { return Ok(UpstreamStream::Plain(socket)) };
        let files = tls.files();
        let name: ServerName<'static> = files.server_name.clone();
        let stream = TlsConnector::from(tls.current()).connect(name, socket).await?;
        if files.http2 && stream.get_ref().1.alpn_protocol() != Some(H2) {
            return Err(io::Error::other("it does not speak HTTP/2; set protocol = \"http1\""));
        }
        Ok(UpstreamStream::Tls(Box::new(stream)))
    }
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            UpstreamStream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            UpstreamStream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            UpstreamStream::Plain(stream) => Pin::new(stream).poll_write(cx, data),
            UpstreamStream::Tls(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            UpstreamStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            UpstreamStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            UpstreamStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            UpstreamStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The bytes of a connection that speaks HTTP/2, before TLS: where a request ends can be seen here.
pub(super) struct Framed {
    stream: UpstreamStream,
    frames: Frames,
    dirty: Dirty,
}

impl Framed {
    pub(super) const fn new(stream: UpstreamStream, dirty: Dirty) -> Framed {
        Framed { stream, frames: Frames::new(), dirty }
    }
}

impl AsyncRead for Framed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Framed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        // Before it is tried: TLS may take a part and fail.
        self.dirty.touched();
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        if let Poll::Ready(Ok(length)) = written
            && self.frames.pass(&data[..length])
        {
            self.dirty.ended();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
