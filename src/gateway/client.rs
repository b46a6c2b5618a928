//! Who is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};

use http::HeaderValue;
use ipnet::IpNet;

/// A client, for as long as its connection lives.
#[derive(Debug)]
pub(super) struct Client {
    /// Where it is: the connection's other end, or what a PROXY protocol header says instead.
    pub(super) address: SocketAddr,
    /// Whether its word about whom it forwards for is taken.
    pub(super) is_trusted: bool,
    /// What upstreams are told about it, made once for a connection.
    pub(super) told: Told,
}

/// See [`Client::told`].
#[derive(Debug)]
pub(super) struct Told {
    /// As `X-Forwarded-For` has it.
    pub(super) address: HeaderValue,
    /// `http` or `https`
    pub(super) scheme: &'static str,
}

impl Client {
    pub(super) fn new(address: SocketAddr, trusted: &[IpNet], has_tls: bool) -> Client {
        let ip = address.ip().to_canonical();
        let scheme = if has_tls { "https" } else { "http" };
        Client {
            address,
            is_trusted: contains(trusted, ip),
            told: Told {
                address: HeaderValue::from_str(&ip.to_string())
                    .expect("an IP address is printable ASCII"),
                scheme,
            },
        }
    }
}

/// An IPv4 address that came over an IPv6 socket is one of IPv4.
pub(super) fn contains(networks: &[IpNet], ip: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&ip.to_canonical()))
}
