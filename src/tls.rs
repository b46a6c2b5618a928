//! TLS: certificates and keys from files, on the listeners and to upstreams.

mod identity;

pub use identity::PeerIdentity;
