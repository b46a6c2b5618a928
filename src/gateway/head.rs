//! What the head of a request says beyond its target: framing, hop-by-hop fields, disguised methods.
//!
//! One pass over the fields, so that the usual request pays once. Fields that end at this hop are
//! removed before the request goes on; `Connection` may name further ones, but none that is meant for
//! the API. What the gateway adds is added after that.

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use smallvec::SmallVec;

use super::forwarded::is_about_the_client;
use super::refusal::Refusal;
use super::route::is_read;
use super::token_header::TokenFields;
use super::{authority, method_claims};
use crate::trace::TraceId;

const ONE_HOST: &str = "send exactly one Host field";
const NO_HOST: &str = "the Host field is no host name or address with an optional port";
const FOR_THE_API: &str =
    "Connection names a field that is not this hop's alone (RFC 9110 §7.6.1); name none of those";
const ONE_LENGTH: &str = "Content-Length is not one decimal number, sent once (RFC 9110 §8.6)";
const ONE_EXPECTATION: &str = "the only Expect is 100-continue";

/// What a field means for the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Nothing: it goes on as it came.
    None,
    Host,
    Connection,
    FencingToken,
    XFencingToken,
    /// The trace that the request belongs to.
    Traceparent,
    /// Where a COPY or MOVE writes to (RFC 4918 §10.3).
    Destination,
    /// Says where the body ends. hyper reads it, and reads Content-Length only without it.
    TransferEncoding,
    /// Ends at this hop, both ways (RFC 9110 §7.6.1).
    HopByHop,
    /// Asks this hop whether to send the body.
    Expect,
    /// Lets a request claim another method than its own, with some servers and frameworks.
    Override,
    /// Lets a request claim another target than its own, with some servers.
    OtherTarget,
    /// How long the body is.
    ContentLength,
    /// Says for whom the request is forwarded.
    Forwarded,
    /// What else an API believes since its gateway says it.
    Trusted,
}

/// What the fields say.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// A field ends at this hop.
    ends_here: bool,
    /// The client holds the body back until it is asked for it.
    pub(super) expects_to_be_asked: bool,
    pub(super) has_host: bool,
    pub(super) tokens: TokenFields,
    pub(super) trace_id: Option<TraceId>,
    /// A field says for whom the request is forwarded.
    pub(super) is_forwarded: bool,
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
    let (mut transfer_encodings, mut has_length) = (0, false);
    for (name, value) in headers {
        match meaning(name)? {
            Meaning::None | Meaning::Trusted => {}
            Meaning::ContentLength => {
                // On the wire of HTTP/1.1 that was judged before (`framing.rs`); hyper takes more for a length.
                let digits = value.as_bytes();
                let is_length =
                    (1..=18).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
                if has_length || !is_length {
                    return Err(Refusal::InvalidRequest(ONE_LENGTH));
                }
                has_length = true;
            }
            Meaning::Host if signs.has_host => return Err(Refusal::InvalidRequest(ONE_HOST)),
            Meaning::Host if !authority::is_host(value.as_bytes()) => {
                return Err(Refusal::InvalidRequest(NO_HOST));
            }
            Meaning::Host => signs.has_host = true,
            Meaning::FencingToken => signs.tokens.plain.add(value),
            Meaning::XFencingToken => signs.tokens.prefixed.add(value),
            Meaning::Traceparent => signs.traceparent(value),
            Meaning::Forwarded => signs.is_forwarded = true,
            Meaning::Destination => signs.has_destination = true,
            Meaning::HopByHop => signs.ends_here = true,
            Meaning::Connection => {
                signs.ends_here = true;
                check_connection(value)?;
            }
            Meaning::Expect => {
                if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
                    return Err(Refusal::InvalidRequest(ONE_EXPECTATION));
                }
                signs.ends_here = true;
                signs.expects_to_be_asked = true;
            }
            Meaning::Override => signs.disguise(value.as_bytes()),
            Meaning::OtherTarget => {
                return Err(Refusal::Unresolvable(format!(
                    "the field {name} names another target"
                )));
            }
            Meaning::TransferEncoding => {
                signs.ends_here = true;
                transfer_encodings += 1;
                // A further coding would be lost on the way, and its bytes taken for the content.
                if !value.as_bytes().eq_ignore_ascii_case(b"chunked") || transfer_encodings > 1 {
                    return Err(Refusal::InvalidRequest("the only Transfer-Encoding is chunked"));
                }
            }
        }
    }
    if !signs.has_host && version >= Version::HTTP_11 {
        return Err(Refusal::InvalidRequest(ONE_HOST));
    }
    authority::check(uri, headers)?;
    if let Some(query) = uri.query() {
        method_claims::of_query(query).for_each(|method| signs.disguise(&method));
    }
    Ok(signs)
}

/// # Errors
/// The name is another spelling of one that has a meaning: many servers hand `A_B` and `A-B` to
/// the application under one name, and some `A.B` as well.
fn meaning(name: &HeaderName) -> Result<Meaning, Refusal> {
    let name = name.as_str();
    let is_plain = |byte: u8| byte.is_ascii_lowercase() | byte.is_ascii_digit() | (byte == b'-');
    // Not `all`, which would look at byte after byte: this is done to many at once.
    if name.bytes().fold(true, |all, byte| all & is_plain(byte)) {
        return Ok(meaning_of(name));
    }
    match meaning_of(&plain_spelling(name)) {
        harmless @ (Meaning::None | Meaning::Override) => Ok(harmless),
        _ => Err(Refusal::InvalidRequest("write - between the words of a standard field's name")),
    }
}

fn plain_spelling(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "-").to_ascii_lowercase()
}

/// Names are in lower case.
fn meaning_of(name: &str) -> Meaning {
    match name {
        "host" => Meaning::Host,
        "destination" => Meaning::Destination,
        "transfer-encoding" => Meaning::TransferEncoding,
        "connection" => Meaning::Connection,
        "fencing-token" => Meaning::FencingToken,
        "x-fencing-token" => Meaning::XFencingToken,
        "traceparent" => Meaning::Traceparent,
        "keep-alive"
        | "proxy-connection"
        | "te"
        | "trailer"
        | "upgrade"
        | "proxy-authorization" => Meaning::HopByHop,
        "expect" => Meaning::Expect,
        "x-http-method-override" | "x-http-method" | "x-method-override" | "x-original-method" => {
            Meaning::Override
        }
        "x-original-url" | "x-rewrite-url" => Meaning::OtherTarget,
        "content-length" => Meaning::ContentLength,
        "via" | "authorization" | "cookie" => Meaning::Trusted,
        name if is_about_the_client(name) => Meaning::Forwarded,
        _ => Meaning::None,
    }
}

impl Signs {
    fn traceparent(&mut self, value: &HeaderValue) {
        self.trace_id = self.trace_id.or_else(|| TraceId::of_traceparent(value.as_bytes()));
    }

    fn disguise(&mut self, claimed: &[u8]) {
        match Method::from_bytes(claimed) {
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
        if self.ends_here {
            strip(headers);
        }
    }
}

/// Checks where an upstream's answer ends, and removes from it what ends at this hop.
///
/// # Errors
/// Other readers than hyper could find another end (RFC 9112 §6.3), and what follows it could be taken for the
/// answer to another request.
pub(super) fn receive(version: Version, headers: &mut HeaderMap) -> Result<(), &'static str> {
    // What nearly every server says, and nothing more of this kind.
    let is_usual = |value: &HeaderValue| value == "keep-alive" || value == "close";
    let (mut has_usual, mut has_encoding, mut has_more, mut lengths) = (false, false, false, 0);
    for (name, value) in &*headers {
        match meaning_of(name.as_str()) {
            Meaning::Connection if is_usual(value) => has_usual = true,
            Meaning::TransferEncoding => {
                let is_chunked = value.as_bytes().eq_ignore_ascii_case(b"chunked");
                if has_encoding || !is_chunked || version < Version::HTTP_11 {
                    return Err(
                        "the upstream's answer has a Transfer-Encoding that is not chunked",
                    );
                }
                has_encoding = true;
            }
            Meaning::ContentLength => {
                lengths += 1;
                let is_number =
                    !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit);
                if lengths > 1 || !is_number {
                    return Err(
                        "the upstream's answer has more than one Content-Length, or one that is no number",
                    );
                }
            }
            Meaning::Connection | Meaning::HopByHop | Meaning::Expect => has_more = true,
            _ => {}
        }
    }
    if has_encoding && lengths > 0 {
        return Err("the upstream's answer has both Content-Length and Transfer-Encoding");
    }
    if has_encoding || has_more {
        strip(headers);
    } else if has_usual {
        headers.remove(CONNECTION);
    }
    Ok(())
}

/// The body is here already when a head goes on, so nobody has to be asked to continue either.
fn ends_here(name: &HeaderName) -> bool {
    use Meaning::{Connection, Expect, HopByHop, TransferEncoding};
    matches!(meaning_of(name.as_str()), Connection | HopByHop | TransferEncoding | Expect)
}

/// Removes what ends at this hop.
pub(super) fn strip(headers: &mut HeaderMap) {
    let named = connection_options(headers)
        .filter(|option| !["close", "keep-alive"].contains(option))
        .filter_map(|option| HeaderName::from_bytes(option.as_bytes()).ok());
    let ending: SmallVec<[HeaderName; 4]> =
        headers.keys().filter(|name| ends_here(name)).cloned().chain(named).collect();
    for name in &ending {
        headers.remove(name);
    }
}

/// The trace that a request belongs to which contradicts itself, if it says so.
pub(super) fn trace_id(headers: &HeaderMap) -> Option<TraceId> {
    headers.get("traceparent").and_then(|field| TraceId::of_traceparent(field.as_bytes()))
}

fn check_connection(value: &HeaderValue) -> Result<(), Refusal> {
    if value == "keep-alive" || value == "close" {
        return Ok(());
    }
    for option in options(value) {
        match meaning_of(&plain_spelling(option)) {
            Meaning::FencingToken | Meaning::XFencingToken => {
                return Err(Refusal::AmbiguousToken("the token must not be named in Connection"));
            }
            Meaning::None | Meaning::Connection | Meaning::HopByHop | Meaning::TransferEncoding => {
            }
            Meaning::Host
            | Meaning::Traceparent
            | Meaning::Destination
            | Meaning::Expect
            | Meaning::Override
            | Meaning::OtherTarget
            | Meaning::ContentLength
            | Meaning::Forwarded
            | Meaning::Trusted => return Err(Refusal::InvalidRequest(FOR_THE_API)),
        }
    }
    Ok(())
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers.get_all(CONNECTION).iter().flat_map(options)
}

fn options(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().ok().into_iter().flat_map(|value| value.split(',')).map(str::trim)
}
