//! What happens to a connection before its first request: a PROXY protocol header, the TLS handshake.
//!
//! All of it has to be over within one limit, and before anything else is allocated for the client.
//! Deliberately absent: HTTP. On plain text only its first bytes tell HTTP/2, see [`super::preface`].

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use proxy_header::{Error, ParseConfig, ProxyHeader};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::client::{Client, contains};
use super::client_stream::{ClientStream, Unread};
use crate::tls::{self, Handshakes};

/// The longest PROXY protocol header that is read. Addresses take 52 bytes; the rest is said by some balancers
/// about themselves.
const PROXY_HEADER_BYTES: usize = 4096;

/// What every client has to come through.
pub(super) struct Door {
    pub(super) tls: Option<Handshakes>,
    /// Who has to begin with a PROXY protocol header.
    pub(super) proxy_protocol_from: Vec<IpNet>,
    pub(super) trusted_proxies: Vec<IpNet>,
    pub(super) limit: Duration,
}

/// A client that came through.
pub(super) struct Arrived {
    pub(super) stream: ClientStream,
    pub(super) client: Client,
    /// It was agreed on; `false` still allows HTTP/2 by prior knowledge on plain text.
    pub(super) is_http2: bool,
}

impl Door {
    /// Who a client is, and its bytes from then on; `None`: it did not say that in time or before the gateway was
    /// `closing`. It has asked for nothing yet.
    pub(super) async fn receive(
        &self,
        mut socket: TcpStream,
        peer: SocketAddr,
        closing: &CancellationToken,
    ) -> Option<(Unread, SocketAddr)> {
        let _ = socket.set_nodelay(true);
        if !contains(&self.proxy_protocol_from, peer.ip()) {
            return Some((Unread::new(socket, Vec::new()), peer));
        }
        let header = timeout(self.limit, proxied(&mut socket));
        match closing.run_until_cancelled(header).await? {
            Ok(Ok((source, rest))) => Some((Unread::new(socket, rest), source.unwrap_or(peer))),
            Ok(Err(error)) => {
                tracing::warn!(%peer, %error, "a connection without a PROXY protocol header was closed");
                None
            }
            Err(_) => None,
        }
    }

    /// Lets it in; `None`: the handshake did not end in time or before the gateway was `closing`.
    pub(super) async fn open(
        &self,
        stream: Unread,
        address: SocketAddr,
        closing: &CancellationToken,
    ) -> Option<Arrived> {
        let client = Client::new(address, &self.trusted_proxies, self.tls.is_some());
        let Some(handshakes) = &self.tls else {
            return Some(Arrived { stream: Either::Left(stream), client, is_http2: false });
        };
        let handshake = handshakes.accept(stream, self.limit);
        let stream = closing.run_until_cancelled(handshake).await??;
        let is_http2 = tls::is_http2(&stream);
        Some(Arrived { stream: Either::Right(Box::new(stream)), client, is_http2 })
    }
}

/// The address that a PROXY protocol header gives, if it gives one, and what was read beyond the header.
async fn proxied(socket: &mut TcpStream) -> io::Result<(Option<SocketAddr>, Vec<u8>)> {
    let mut read = Vec::with_capacity(256);
    loop {
        if read.len() >= PROXY_HEADER_BYTES {
            return Err(io::Error::other("the header is too long"));
        }
        if socket.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match ProxyHeader::parse(&read, ParseConfig::default()) {
            Ok((header, length)) => {
                let source = header.proxied_address().map(|proxied| proxied.source);
                return Ok((source, read.split_off(length)));
            }
            Err(Error::BufferTooShort) => {}
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}
