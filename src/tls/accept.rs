//! The handshake of a client's connection, within a limit.

use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{H2, PeerIdentity, ServerTls};

/// What a listener does with a connection before the first request.
#[derive(Clone)]
pub struct Handshakes {
    /// The listener's TLS.
    pub tls: Arc<ServerTls>,
    /// Counts those that did not get through.
    pub failed: IntCounter,
}

impl Handshakes {
    /// Leads a client through the handshake; `None`: it did not get through within `limit`, and was told as far as
    /// TLS can.
    pub async fn accept<S>(&self, stream: S, limit: Duration) -> Option<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = TlsAcceptor::from(self.tls.current()).accept(stream);
        let why = match timeout(limit, handshake).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        // Anybody who can connect can cause it as often as they like, so it is counted and not in the usual log.
        tracing::debug!(error = why, "a TLS handshake failed");
        self.failed.inc();
        None
    }
}

/// Whether HTTP/2 was agreed on.
pub(crate) fn is_http2<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(H2)
}

/// Whom the client's verified certificate names, if it showed one.
pub(crate) fn identity<S>(stream: &TlsStream<S>) -> Option<PeerIdentity> {
    let chain = stream.get_ref().1.peer_certificates()?;
    chain.first().map(PeerIdentity::of)
}
