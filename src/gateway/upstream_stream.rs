//! The bytes of an upstream connection above its socket: TLS, and the frames of HTTP/2.

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

/// Leads a connection through the TLS handshake.
///
/// # Errors
/// It failed, or the upstream does not speak the HTTP that it is configured to.
pub(super) async fn secure(
    socket: UpstreamSocket,
    tls: &ClientTls,
) -> io::Result<TlsStream<UpstreamSocket>> {
    let files = tls.files();
    let name: ServerName<'static> = files.server_name.clone();
    let stream = TlsConnector::from(tls.current()).connect(name, socket).await?;
    if files.http2 && stream.get_ref().1.alpn_protocol() != Some(H2) {
        return Err(io::Error::other("it does not speak HTTP/2; set protocol = \"http1\""));
    }
    Ok(stream)
}

/// The bytes of a connection that speaks HTTP/2, before TLS: where a request ends can be seen here.
pub(super) struct Framed<S> {
    stream: S,
    frames: Frames,
    dirty: Dirty,
}

impl<S> Framed<S> {
    pub(super) const fn new(stream: S, dirty: Dirty) -> Framed<S> {
        Framed { stream, frames: Frames::new(), dirty }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framed<S> {
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
