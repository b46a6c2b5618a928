//! Where a request goes: pure functions on its head.

use std::net::SocketAddr;

use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Uri};

/// The address of a gateway: `http://HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway(Authority);

/// A text that is not the address of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a gateway's address is http://HOST:PORT with nothing behind it, such as http://127.0.0.1:8080"
)]
pub struct InvalidGateway;

impl std::str::FromStr for Gateway {
    type Err = InvalidGateway;

    fn from_str(text: &str) -> Result<Gateway, InvalidGateway> {
        let uri: Uri = text.parse().map_err(|_| InvalidGateway)?;
        match (uri.scheme(), uri.authority(), uri.path(), uri.query()) {
            (Some(scheme), Some(host), "/", None)
                if *scheme == Scheme::HTTP && is_plain(host) && !text.contains('#') =>
            {
                Ok(Gateway(host.clone()))
            }
            _ => Err(InvalidGateway),
        }
    }
}

/// Why a request goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "fencegate run: a token cannot be stamped inside TLS; \
         use an http:// URL to the gateway instead of https://"
    )]
    Tls,
    #[error(
        "fencegate run: this request names no host; give `fencegate run` a --gateway, \
         or use FENCING_PROXY as a proxy: curl -x \"$FENCING_PROXY\" http://HOST/PATH"
    )]
    NoGateway,
    #[error("fencegate run: the host in this request's target cannot be used")]
    BadAuthority,
}

/// The host to send a request to, and the target to send it with.
pub(super) fn read(
    head: &Parts,
    own: SocketAddr,
    gateway: Option<&Gateway>,
) -> Result<(Authority, PathAndQuery), Refusal> {
    if head.method == Method::CONNECT {
        return Err(Refusal::Tls);
    }
    let path = head.uri.path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    match (head.uri.scheme(), head.uri.authority()) {
        (Some(scheme), Some(_)) if *scheme != Scheme::HTTP => Err(Refusal::Tls),
        (_, Some(host)) if !is_plain(host) => Err(Refusal::BadAuthority),
        // A client that was given this address both as proxy and as base URL asks the proxy for
        // itself.
        (_, Some(host)) if !is(host, own) => Ok((host.clone(), path)),
        _ => gateway.map(|gateway| (gateway.0.clone(), path)).ok_or(Refusal::NoGateway),
    }
}

fn is_plain(host: &Authority) -> bool {
    !host.host().is_empty() && !host.as_str().contains('@')
}

fn is(host: &Authority, own: SocketAddr) -> bool {
    host.port_u16() == Some(own.port())
        && (host.host().eq_ignore_ascii_case("localhost") || host.host() == own.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_target(method: &str, uri: &str, gateway: Option<&str>) -> Result<String, Refusal> {
        let request = http::Request::builder().method(method).uri(uri).body(()).unwrap();
        let gateway = gateway.map(|gateway| gateway.parse().unwrap());
        let own = "127.0.0.1:4000".parse().unwrap();
        let target = read(&request.into_parts().0, own, gateway.as_ref());
        target.map(|(host, path)| format!("{host} {path}"))
    }

    #[test]
    fn proxy_requests_go_to_the_host_they_name_with_the_target_they_came_with() {
        let target = read_target("PUT", "http://api:81/a/%2e./b//c?x=%41&&", Some("http://gw"));
        assert_eq!(target.as_deref(), Ok("api:81 /a/%2e./b//c?x=%41&&"));
        assert_eq!(read_target("GET", "http://[::1]:81", None).as_deref(), Ok("[::1]:81 /"));
    }

    #[test]
    fn requests_that_name_no_other_host_go_to_the_gateway() {
        for uri in ["/a?b", "http://127.0.0.1:4000/a?b", "http://LOCALHOST:4000/a?b"] {
            let target = read_target("PUT", uri, Some("http://gw:8080"));
            assert_eq!(target.as_deref(), Ok("gw:8080 /a?b"), "{uri}");
            assert_eq!(read_target("PUT", uri, None), Err(Refusal::NoGateway), "{uri}");
        }
    }

    #[test]
    fn what_cannot_be_stamped_is_refused() {
        assert_eq!(read_target("CONNECT", "api:443", None), Err(Refusal::Tls));
        assert_eq!(read_target("GET", "https://api/", None), Err(Refusal::Tls));
        assert_eq!(read_target("GET", "http://me:pw@api/", None), Err(Refusal::BadAuthority));
    }

    #[test]
    fn gateways_are_bare_http_addresses() {
        assert!("http://127.0.0.1:8080".parse::<Gateway>().is_ok());
        assert!("http://[::1]:8080/".parse::<Gateway>().is_ok());
        for text in ["", "gw:80", "https://gw", "http://gw/x", "http://gw?x", "http://a@gw", "/"] {
            assert_eq!(text.parse::<Gateway>(), Err(InvalidGateway), "{text}");
        }
    }
}
