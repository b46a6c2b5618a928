//! What the head of a request says beyond its target: framing, hop-by-hop fields, disguised methods.
//!
//! One pass over the fields, so that the usual request pays once. Fields that end at this hop are
//! removed before the request goes on; `Connection` may name further ones, but never the token.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use super::refusal::Refusal;
use super::route::is_read;
use super::token_header::{FENCING_TOKEN, X_FENCING_TOKEN};
use crate::trace::TraceId;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Where a COPY or MOVE writes to (RFC 4918 §10.3).
pub(super) const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// Fields with which servers and frameworks let a request claim another method than its own.
const OVERRIDES: [HeaderName; 4] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-original-method"),
];

/// Fields with which some servers let a request claim another target than its own.
const OTHER_TARGETS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-url"), HeaderName::from_static("x-rewrite-url")];

/// Ends at this hop, both ways (RFC 9110 §7.6.1).
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    PROXY_AUTHORIZATION,
];

/// What a field means for the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Nothing: it goes on as it came.
    None,
    Host,
    Destination,
    /// Says where the body ends. hyper reads it, and reads Content-Length only without it.
    TransferEncoding,
    /// Ends at this hop.
    HopByHop,
    Override,
    OtherTarget,
    /// Judged elsewhere.
    Other,
}

/// What the fields say.
#[derive(Debug, Default)]
pub(super) struct Signs {
    hop_by_hop: bool,
    /// The request names a second resource.
    pub(super) has_destination: bool,
    /// The request claims to be a method that is not its own.
    pub(super) disguised: Option<Method>,
    pub(super) disguised_badly: bool,
}

/// Reads the fields once.
///
/// # Errors
/// The request contradicts itself.
pub(super) fn read(
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
) -> Result<Signs, Refusal> {
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        return Err(Refusal::MethodNotAllowed);
    }
    let mut signs = Signs::default();
    let (mut hosts, mut transfer_encodings) = (0, 0);
    for (name, value) in headers {
        match meaning(name)? {
            Meaning::None | Meaning::Other => {}
            Meaning::Host => hosts += 1,
            Meaning::Destination => signs.has_destination = true,
            Meaning::HopByHop => signs.hop_by_hop = true,
            Meaning::Override => signs.disguise(value),
            Meaning::OtherTarget => {
                return Err(Refusal::Unresolvable(format!(
                    "the field {name} names another target"
                )));
            }
            Meaning::TransferEncoding => {
                signs.hop_by_hop = true;
                transfer_encodings += 1;
                // A further coding would be lost on the way, and its bytes taken for the content.
                if !value.as_bytes().eq_ignore_ascii_case(b"chunked") || transfer_encodings > 1 {
                    return Err(Refusal::InvalidRequest("the only Transfer-Encoding is chunked"));
                }
            }
        }
    }
    if hosts > 1 || (hosts == 0 && version >= Version::HTTP_11) {
        return Err(Refusal::InvalidRequest("send exactly one Host field"));
    }
    check_absolute_form(uri, headers)?;
    check_connection(headers)?;
    Ok(signs)
}

/// # Errors
/// The name is another spelling of one that has a meaning: many servers hand `A_B` and `A-B` to
/// the application under one name.
fn meaning(name: &HeaderName) -> Result<Meaning, Refusal> {
    if !name.as_str().contains('_') {
        return Ok(meaning_of(name));
    }
    let twin = HeaderName::from_bytes(name.as_str().replace('_', "-").as_bytes());
    match twin.map_or(Meaning::None, |twin| meaning_of(&twin)) {
        harmless @ (Meaning::None | Meaning::Override) => Ok(harmless),
        _ => Err(Refusal::InvalidRequest("write - instead of _ in the names of standard fields")),
    }
}

fn meaning_of(name: &HeaderName) -> Meaning {
    if *name == HOST {
        Meaning::Host
    } else if *name == TRANSFER_ENCODING {
        Meaning::TransferEncoding
    } else if HOP_BY_HOP.contains(name) || *name == EXPECT {
        Meaning::HopByHop
    } else if OVERRIDES.contains(name) {
        Meaning::Override
    } else if OTHER_TARGETS.contains(name) {
        Meaning::OtherTarget
    } else if *name == DESTINATION {
        Meaning::Destination
    } else if [CONTENT_LENGTH, FENCING_TOKEN, X_FENCING_TOKEN].contains(name) {
        Meaning::Other
    } else {
        Meaning::None
    }
}

impl Signs {
    fn disguise(&mut self, value: &HeaderValue) {
        match Method::from_bytes(value.as_bytes()) {
            // Twice, the second claim hides the first: count as the worst.
            Ok(method) if self.disguised.is_none() => self.disguised = Some(method),
            _ => self.disguised_badly = true,
        }
    }

    /// Whether the request, by what it claims, may write although its method does not.
    pub(super) fn may_write(&self) -> bool {
        self.disguised_badly || self.disguised.as_ref().is_some_and(|method| !is_read(method))
    }

    /// Removes what ends at this hop.
    pub(super) fn strip(&self, headers: &mut HeaderMap) {
        if self.hop_by_hop {
            // The body is here already, so nobody has to be asked to continue.
            headers.remove(EXPECT);
            strip_hop_by_hop(headers);
        }
    }
}

/// Removes what ends at this hop from an answer's or a request's fields.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = connection_options(headers)
        .filter_map(|option| HeaderName::from_bytes(option.as_bytes()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Removes what ends at this hop from an upstream's answer, if there is anything.
pub(super) fn strip_answer(headers: &mut HeaderMap) {
    if headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        strip_hop_by_hop(headers);
    }
}

/// The trace that the request belongs to, if it says so.
pub(super) fn trace_id(headers: &HeaderMap) -> Option<TraceId> {
    headers.get(TRACEPARENT).and_then(|field| TraceId::of_traceparent(field.as_bytes()))
}

/// An absolute target whose host is not the request's own has two readings (RFC 9112 §3.2.2).
fn check_absolute_form(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(authority) = uri.authority() else { return Ok(()) };
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    if host.is_some_and(|host| !host.eq_ignore_ascii_case(authority.as_str().as_bytes())) {
        return Err(Refusal::Unresolvable("the target's host and the Host field differ".into()));
    }
    Ok(())
}

fn check_connection(headers: &HeaderMap) -> Result<(), Refusal> {
    let names_token = connection_options(headers).any(|option| {
        option.eq_ignore_ascii_case(FENCING_TOKEN.as_str())
            || option.eq_ignore_ascii_case(X_FENCING_TOKEN.as_str())
    });
    if names_token {
        return Err(Refusal::AmbiguousToken("the token must not be named in Connection"));
    }
    Ok(())
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}
