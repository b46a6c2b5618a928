//! What an upstream is told about the client: `Forwarded` (RFC 7239) and the older `X-Forwarded-*`.
//!
//! An untrusted client's word is never passed on, whatever else is configured: an upstream that believes these
//! fields must not be told by anybody what address or host to believe.

use http::header::{FORWARDED, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::client::Client;
use crate::config::Forwarded;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Whether a field, its name in lower case, says for whom a request is forwarded.
pub(super) fn is_about_the_client(name: &str) -> bool {
    matches!(
        name,
        "forwarded"
            | "x-forwarded"
            | "x-real-ip"
            | "x-client-ip"
            | "x-cluster-client-ip"
            | "true-client-ip"
            | "cf-connecting-ip"
    ) || name.starts_with("x-forwarded-")
}

/// Removes what an untrusted client says.
pub(super) fn drop_untrusted(client: &Client, headers: &mut HeaderMap) {
    if client.is_trusted {
        return;
    }
    let named = headers.keys().filter(|name| is_about_the_client(name.as_str()));
    let named: Vec<HeaderName> = named.cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

/// Adds what the gateway knows, behind what a trusted proxy said.
pub(super) fn tell(how: Forwarded, client: &Client, headers: &mut HeaderMap) {
    match how {
        Forwarded::None => {}
        Forwarded::XForwarded => {
            let chain = appended(headers, &FOR, &client.told.address);
            headers.insert(FOR, chain);
            // Of these the first proxy knows best what the client asked for.
            if !headers.contains_key(PROTO) {
                headers.insert(PROTO, HeaderValue::from_static(client.told.scheme));
            }
            if !headers.contains_key(FORWARDED_HOST)
                && let Some(host) = headers.get(HOST).cloned()
            {
                headers.insert(FORWARDED_HOST, host);
            }
        }
        Forwarded::Forwarded => {
            if let Some(element) = element(client, headers.get(HOST)) {
                let chain = appended(headers, &FORWARDED, &element);
                headers.insert(FORWARDED, chain);
            }
        }
    }
}

/// What all fields of a name say, in one, with something more at the end.
fn appended(headers: &HeaderMap, name: &HeaderName, last: &HeaderValue) -> HeaderValue {
    let mut parts = headers.get_all(name).iter().chain([last]).map(HeaderValue::as_bytes);
    let first = parts.next().unwrap_or_default().to_vec();
    let all = parts.fold(first, |mut all, part| {
        all.extend_from_slice(b", ");
        all.extend_from_slice(part);
        all
    });
    HeaderValue::from_bytes(&all).unwrap_or_else(|_| last.clone())
}

fn element(client: &Client, host: Option<&HeaderValue>) -> Option<HeaderValue> {
    let address = client.told.address.to_str().ok()?;
    // RFC 7239 §6: an IPv6 address stands in brackets and quotes.
    let address = if client.address.ip().to_canonical().is_ipv6() {
        format!("\"[{address}]\"")
    } else {
        address.to_owned()
    };
    let mut element = format!("for={address};proto={}", client.told.scheme);
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        let quoted = host.replace('\\', "\\\\").replace('"', "\\\"");
        element.push_str(&format!(";host=\"{quoted}\""));
    }
    HeaderValue::from_str(&element).ok()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn client(address: &str, trusted: &str) -> Client {
        let address: SocketAddr = address.parse().unwrap();
        Client::new(address, &[trusted.parse().unwrap()], true)
    }

    fn told(how: Forwarded, client: &Client, said: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("api.example"));
        for (name, value) in said {
            headers.append(*name, HeaderValue::from_static(value));
        }
        drop_untrusted(client, &mut headers);
        tell(how, client, &mut headers);
        headers.remove(HOST);
        let shown = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        let mut told: Vec<String> = headers.iter().map(shown).collect();
        told.sort_unstable();
        told
    }

    const SAID: [(&str, &str); 5] = [
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("forwarded", "for=203.0.113.9"),
        ("x-real-ip", "203.0.113.9"),
    ];

    #[test]
    fn an_untrusted_clients_word_is_replaced() {
        let client = client("192.0.2.1:5", "10.0.0.0/8");
        assert!(told(Forwarded::None, &client, &SAID).is_empty());
        assert_eq!(
            told(Forwarded::XForwarded, &client, &SAID),
            [
                "x-forwarded-for: 192.0.2.1",
                "x-forwarded-host: api.example",
                "x-forwarded-proto: https"
            ]
        );
        assert_eq!(
            told(Forwarded::Forwarded, &client, &SAID),
            ["forwarded: for=192.0.2.1;proto=https;host=\"api.example\""]
        );
    }

    #[test]
    fn a_trusted_proxys_word_is_kept_and_the_gateways_comes_behind_it() {
        let client = client("[::ffff:10.0.0.2]:5", "10.0.0.0/8");
        let told = told(Forwarded::XForwarded, &client, &SAID);
        assert!(told.contains(&"x-forwarded-for: 203.0.113.9, 10.0.0.1, 10.0.0.2".to_owned()));
        assert!(told.contains(&"x-forwarded-proto: http".to_owned()));
        assert!(told.contains(&"x-real-ip: 203.0.113.9".to_owned()));
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets_and_quotes() {
        let client = client("[2001:db8::1]:5", "2001:db8::/32");
        assert_eq!(
            told(Forwarded::Forwarded, &client, &SAID[3..4]),
            ["forwarded: for=203.0.113.9, for=\"[2001:db8::1]\";proto=https;host=\"api.example\""]
        );
    }
}
