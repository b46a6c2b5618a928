//! TLS: certificates and keys from files, on the listeners and to upstreams.
//!
//! Owns what rustls is configured with: one provider of cryptography (ring), TLS 1.2 and 1.3, no early data, since
//! that could be replayed, and files that are read again while the gateway runs. Invariant: a configuration is used
//! only if all of its files were read together and fit; one that does not leaves the one before it in use.
//! Deliberately absent: connections, time limits (the listeners have those), and who may do what.

mod accept;
mod client;
mod files;
mod identity;
mod live;
mod metrics;
mod server;
mod store;

use std::path::PathBuf;

pub use accept::Handshakes;
pub(crate) use accept::{identity, is_http2};
pub use client::{ClientFiles, KeyPair};
pub use identity::PeerIdentity;
pub(crate) use live::Files;
pub use live::Live;
pub use metrics::TlsMetrics;
pub use server::{ClientCertificates, ServerFiles};
pub use store::Certificates;

/// What a listener's connections are encrypted with.
pub type ServerTls = Live<ServerFiles>;
/// What connections to an upstream are encrypted with.
pub type ClientTls = Live<ClientFiles>;

/// Why files cannot be used for TLS. It names the file, never what is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not what it should be.
    #[error("{} {why}", file.display())]
    File {
        /// Which one.
        file: PathBuf,
        /// What is wrong and what to do.
        why: String,
    },
    /// Each file is sound, but together they are not.
    #[error("{0}")]
    Together(String),
}

/// HTTP/2 over TLS, as ALPN calls it.
pub(crate) const H2: &[u8] = b"h2";
/// HTTP/1.1.
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";
