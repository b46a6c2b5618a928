//! Reads one value each. An error says what is wrong with the value; the caller adds where, and an
//! example.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Rate;
use super::file;
use super::mistakes::{nearest, shown};
use crate::coordinator::{InvalidPostgresUrl, PostgresAccess};
use crate::fence::Resource;
use crate::metrics::UNMATCHED_ROUTE;
use crate::store::PostgresUrl;

/// No wait of this program is sensibly longer, and sums of durations stay far from overflow.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// `30s`, `500ms`, `10m`, `1h`; `0s` is a duration.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let millis_per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" if !number.is_empty() => {
            return Err(format!("{number} has no unit; add ms, s, m or h"));
        }
        _ => {
            let found = shown(text);
            return Err(format!(
                "{found} is no duration, which is a whole number and ms, s, m or h"
            ));
        }
    };
    if number.is_empty() {
        return Err(format!("{} has a unit, but no number", shown(text)));
    }
    let millis = number.parse::<u64>().ok().and_then(|n| n.checked_mul(millis_per_unit));
    millis
        .map(Duration::from_millis)
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| format!("{} is too long; at most 720h", shown(text)))
}

/// A duration that is not zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        positive => Ok(positive),
    }
}

/// `65536`, `64KiB`, `10MiB`, `1GiB`: bytes, from `least` to `most`.
pub(super) fn size(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, String> {
    move |text| {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let bytes_per_unit = match unit {
            "" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => {
                let found = shown(text);
                let expected = "a whole number of bytes, or one with KiB, MiB or GiB";
                return Err(format!("{found} is no size, which is {expected}"));
            }
        };
        let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(bytes_per_unit));
        bytes
            .filter(|bytes| (least..=most).contains(bytes))
            .ok_or_else(|| format!("{} is not from {least} to {most} bytes", shown(text)))
    }
}

/// A whole number from 1 to `most`.
pub(super) fn number(most: usize) -> impl Fn(&str) -> Result<usize, String> {
    move |text| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse()
            .ok()
            .filter(|number| is_plain && (1..=most).contains(number))
            .ok_or_else(|| format!("{} is no whole number from 1 to {most}", shown(text)))
    }
}

/// `100/s`, `6000/m`: so many in a second or a minute. What is saved up is at most one such time's.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("{} is no rate, which is a whole number and /s or /m", shown(text));
    let (count, per) = match text.split_once('/').ok_or_else(wrong)? {
        (count, "s") => (count, Duration::from_secs(1)),
        (count, "m") => (count, Duration::from_secs(60)),
        _ => return Err(wrong()),
    };
    let count = number(1_000_000)(count)?;
    Ok(Rate { count: u32::try_from(count).map_err(|_| wrong())?, per })
}

/// `127.0.0.1:8080`, `[::1]:8080`. Names are not resolved: what is listened on is to be plain.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.strip_prefix(':') {
        Some(port) if port.parse::<u16>().is_ok() => {
            format!("{text:?} has no IP address; every interface is \"0.0.0.0:{port}\"")
        }
        _ => format!("{} is no IP address and port", shown(text)),
    })
}

/// `[a-z0-9_-]+`, up to 64 characters.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    if (1..=64).contains(&text.len()) && text.bytes().all(is_allowed) {
        Ok(text.to_owned())
    } else {
        Err(format!("{} is no name, which is 1 to 64 of a-z, 0-9, _ and -", shown(text)))
    }
}

/// The name of a resource.
pub(super) fn resource(text: &str) -> Result<Resource, String> {
    Resource::new(text).map_err(|error| format!("{} is no resource: {error}", shown(text)))
}

/// A name that no metric uses already.
pub(super) fn route_name(text: &str) -> Result<String, String> {
    if text == UNMATCHED_ROUTE {
        return Err(format!("{text:?} is what metrics call requests that no route takes"));
    }
    name(text)
}

/// One of a few words.
pub(super) fn choice<T: Copy>(choices: &[(&str, T)]) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        let found = choices.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
            let hint = nearest(text, choices.iter().map(|(word, _)| *word))
                .map_or_else(String::new, |word| format!("; did you mean {word:?}?"));
            format!("{} is not {}{hint}", shown(text), words.join(" or "))
        })
    }
}

/// An upper-case method that can be fenced.
pub(super) fn method(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a method is empty".to_owned()),
        "CONNECT" | "TRACE" => Err(format!("{text} is never forwarded, so it needs no fence")),
        _ if http::Method::from_bytes(text.as_bytes()).is_err() => {
            Err(format!("{} is no HTTP method", shown(text)))
        }
        _ if text.bytes().any(|byte| byte.is_ascii_lowercase()) => {
            let upper = text.to_ascii_uppercase();
            Err(format!("methods are upper case: write {upper:?} for {text:?}"))
        }
        _ => Ok(text.to_owned()),
    }
}

/// Where an upstream is.
#[derive(Clone, Debug)]
pub(super) struct UpstreamUrl {
    /// `host:port`
    pub(super) authority: String,
    pub(super) has_tls: bool,
}

impl UpstreamUrl {
    /// The host, an IPv6 address without brackets.
    pub(super) fn host(&self) -> &str {
        let host = self.authority.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

/// `http://host:port` or `https://host:port` and nothing more.
pub(super) fn upstream_url(text: &str) -> Result<UpstreamUrl, String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(format!("{} is no URL: http:// or https:// and a host", shown(text)));
    };
    let has_tls = scheme.eq_ignore_ascii_case("https");
    if !has_tls && !scheme.eq_ignore_ascii_case("http") {
        return Err(format!("{} does not start with http:// or https://", shown(text)));
    }
    // Before anything else, so that no later message has to think of it.
    if rest.contains('@') {
        return Err("must hold no user name or password; clients send their own".to_owned());
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        let found = shown(text);
        return Err(format!("{found} must end after the port; paths are passed on as they come"));
    }
    let (host, port) = host_and_port(authority, if has_tls { 443 } else { 80 })
        .ok_or_else(|| format!("{} has no valid host and port", shown(text)))?;
    Ok(UpstreamUrl { authority: format!("{host}:{port}"), has_tls })
}

/// Where a collector of OpenTelemetry listens for OTLP over HTTP, without a slash at the end.
pub(super) fn collector(text: &str) -> Result<String, String> {
    let Some(authority) = text.strip_prefix("http://") else {
        return Err(format!(
            "{} does not start with http://, the only way to a collector: let one on this host, or \
             one that is reached safely, pass the spans on",
            shown(text)
        ));
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains(['/', '?', '#', '@']) {
        return Err(format!("{} must end after the port; /v1/traces is added", shown(text)));
    }
    let (host, port) = host_and_port(authority, 4318)
        .ok_or_else(|| format!("{} has no valid host and port", shown(text)))?;
    Ok(format!("http://{host}:{port}"))
}

/// The name of a service, as people see it in their traces.
pub(super) fn service(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 100 || text.chars().any(char::is_control) {
        return Err(format!("{} is no name of 1 to 100 characters", shown(text)));
    }
    Ok(text.to_owned())
}

fn host_and_port(authority: &str, default_port: u16) -> Option<(&str, u16)> {
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of `[::1]` separate no port.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port = match port {
        None => default_port,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port != 0)?
        }
        Some(_) => return None,
    };
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => matches!(address.parse(), Ok(IpAddr::V6(_))),
        None => {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !host.is_empty() && host.len() <= 253 && host.bytes().all(is_allowed)
        }
    };
    is_host.then_some((host, port))
}

/// `store.url`.
#[derive(Debug)]
pub(super) enum StoreUrl {
    Sqlite(PathBuf),
    Postgres(PostgresUrl),
}

/// `postgres://…`
pub(super) fn store_server(text: &str) -> Result<PostgresUrl, String> {
    match text.split_once("://") {
        Some(("postgres" | "postgresql", _)) => PostgresUrl::parse(text),
        _ => Err("expected postgres://user@host:port/database".to_owned()),
    }
}

/// The content of a file, without the end of its last line.
pub(super) fn secret(path: &str) -> Result<String, String> {
    let text = file::read_text(Path::new(path)).map_err(|why| format!("{} {why}", shown(path)))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{} is empty", shown(path))),
        secret => Ok(secret.to_owned()),
    }
}

/// Below a second the margins for two machines' clocks would be most of it.
pub(super) fn instance_ttl(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_secs(1), Duration::from_mins(10));
    match duration(text)? {
        ttl if (least..=most).contains(&ttl) => Ok(ttl),
        _ => Err(format!("{} is not from 1s to 10m", shown(text))),
    }
}

/// `sqlite:PATH` or `postgres://…`.
pub(super) fn store(text: &str) -> Result<StoreUrl, String> {
    // Nothing of an unknown URL is shown: it may hold a password anywhere.
    match text.split_once(':') {
        Some(("postgres" | "postgresql", _)) => store_server(text).map(StoreUrl::Postgres),
        Some(("sqlite", "")) => Err("names no file".to_owned()),
        Some(("sqlite", path)) if path.starts_with("//") => {
            Err("takes a path and no //: sqlite:/absolute/path or sqlite:relative/path".to_owned())
        }
        Some(("sqlite", path)) if path.contains(":memory:") => {
            Err("a store in memory forgets; name a file".to_owned())
        }
        Some(("sqlite", path)) if path.contains('?') => {
            Err("sqlite:PATH takes no parameters after a ?".to_owned())
        }
        Some(("sqlite", path)) if path.chars().any(char::is_control) => {
            Err("the path has a control character".to_owned())
        }
        Some(("sqlite", path)) => Ok(StoreUrl::Sqlite(PathBuf::from(path))),
        _ => Err("expected sqlite:PATH or postgres://user@host:port/database".to_owned()),
    }
}

/// What `coordinator.url` says.
#[derive(Clone, Debug)]
pub(super) enum CoordinatorUrl {
    Embedded,
    /// `host:port` of each member.
    Etcd {
        endpoints: Vec<String>,
        with_tls: bool,
    },
    Postgres(PostgresAccess),
}

/// The port of etcd's clients.
const ETCD_PORT: u16 = 2379;

/// `embedded`, `postgres://…`, or `etcd://host:port,host:port` with as many as there are; with TLS `etcds://`.
pub(super) fn coordinator(text: &str) -> Result<CoordinatorUrl, String> {
    if text == "embedded" {
        return Ok(CoordinatorUrl::Embedded);
    }
    let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
    let with_tls = match scheme {
        "etcd" => false,
        "etcds" => true,
        "postgres" | "postgresql" => return postgres(text).map(CoordinatorUrl::Postgres),
        _ => {
            let expected = "expected embedded, etcd://host:port,…, etcds://host:port,… or \
                            postgres://user@host:port/database";
            return Err(expected.to_owned());
        }
    };
    // Nothing of it is shown: it may hold a password anywhere.
    if rest.contains('@') {
        return Err("must hold no user name or password; there is coordinator.username".to_owned());
    }
    let members = rest.strip_prefix("//").ok_or("etcd: is followed by // and the members")?;
    let member = |member: &str| {
        let (host, port) = host_and_port(member, ETCD_PORT)
            .ok_or("each member, between commas, is a host and a port")?;
        Ok(format!("{host}:{port}"))
    };
    let endpoints = members.split(',').map(member).collect::<Result<_, String>>()?;
    Ok(CoordinatorUrl::Etcd { endpoints, with_tls })
}

/// `postgres://…`, or `none`.
pub(super) fn listen_url(text: &str) -> Result<Option<PostgresAccess>, String> {
    if text == "none" { Ok(None) } else { postgres(text).map(Some) }
}

fn postgres(text: &str) -> Result<PostgresAccess, String> {
    text.parse().map_err(|error: InvalidPostgresUrl| error.to_string())
}

/// What keys in etcd begin with: printable, not only slashes, and none at the end.
pub(super) fn prefix(text: &str) -> Result<String, String> {
    let prefix = text.trim_end_matches('/');
    if prefix.is_empty() || prefix.len() > 1024 || prefix.chars().any(char::is_control) {
        return Err(format!("{} is no prefix: 1 to 1024 bytes before the slash", shown(text)));
    }
    Ok(prefix.to_owned())
}

/// Anything but nothing.
pub(super) fn text(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("is empty".to_owned()) } else { Ok(text.to_owned()) }
}
