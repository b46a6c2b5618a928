//! Reads one URL each, as [`super::values`] does other values.

use std::net::IpAddr;
use std::path::PathBuf;

use super::mistakes::shown;
use crate::coordinator::{InvalidPostgresUrl, PostgresAccess};
use crate::store::PostgresUrl;

/// The port of etcd's clients.
const ETCD_PORT: u16 = 2379;

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
