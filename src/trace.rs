//! The ids that tie a request's answer, its log lines and its trace together (W3C Trace Context).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A trace id of W3C Trace Context: 16 bytes, written as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(u128);

impl TraceId {
    /// Reads the id out of a `traceparent` field; `None` if the field is not valid.
    #[must_use]
    pub fn of_traceparent(field: &[u8]) -> Option<TraceId> {
        let [b'0', b'0', b'-', rest @ ..] = field else { return None };
        let (id, rest) = rest.split_at_checked(32)?;
        if rest.len() != 20 || rest[0] != b'-' || rest[17] != b'-' {
            return None;
        }
        let mut number = 0;
        for digit in id {
            if digit.is_ascii_uppercase() {
                return None;
            }
            number = number << 4 | u128::from(char::from(*digit).to_digit(16)?);
        }
        (number != 0).then_some(TraceId(number))
    }
}

/// The place in a trace that a request came from, of the first version of the field, whose length is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace_id: TraceId,
    /// The span of whoever sent the request.
    pub span_id: SpanId,
    /// Whether that one records its span, and wants ours.
    pub is_sampled: bool,
}

/// A span: 8 bytes, written as 16 lower-case hexadecimal digits. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(u64);

impl Parent {
    /// Reads a `traceparent` field; `None` if it is not valid.
    #[must_use]
    pub fn of_traceparent(field: &[u8]) -> Option<Parent> {
        let trace_id = TraceId::of_traceparent(field)?;
        let hex = |at: std::ops::Range<usize>| {
            let digits = std::str::from_utf8(field.get(at)?).ok()?;
            let is_lower = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
            let is_hex = digits.bytes().all(is_lower);
            is_hex.then(|| u64::from_str_radix(digits, 16).ok())?
        };
        let span_id = hex(36..52).filter(|id| *id != 0).map(SpanId)?;
        Some(Parent { trace_id, span_id, is_sampled: hex(53..55)? & 1 == 1 })
    }

    /// The field that says it.
    #[must_use]
    pub fn to_traceparent(self) -> String {
        let Parent { trace_id, span_id, is_sampled } = self;
        format!("00-{trace_id}-{span_id}-{:02x}", u8::from(is_sampled))
    }
}

impl TraceId {
    /// As protocols carry it.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl SpanId {
    /// As protocols carry it.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Makes ids for requests that bring none: a random half for the maker, a counted half for the
/// request. Unique without a random number per request.
#[derive(Debug)]
pub struct TraceIds {
    maker: u64,
    made: AtomicU64,
}

impl TraceIds {
    /// A maker of ids.
    #[must_use]
    pub fn new() -> TraceIds {
        let (maker, _) = uuid::Uuid::new_v4().as_u64_pair();
        TraceIds { maker, made: AtomicU64::new(1) }
    }

    /// The next id.
    pub fn next(&self) -> TraceId {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        TraceId(u128::from(self.maker) << 64 | u128::from(made))
    }

    /// The next id of a span. They are counted too, but by a step that leaves no number out and no two alike.
    pub fn next_span(&self) -> SpanId {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        SpanId(self.maker.wrapping_add(made.wrapping_mul(STEP)).max(1))
    }
}

impl Default for TraceIds {
    fn default() -> TraceIds {
        TraceIds::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_traceparent_gives_its_trace_id() {
        let field = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let id = TraceId::of_traceparent(field).map(|id| id.to_string());
        assert_eq!(id.as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        for broken in [
            &b""[..],
            b"00-4bf92f3577b34da6a3ce929d0e0e4736",
            b"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            b"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            b"00-zbf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceId::of_traceparent(broken), None);
        }
    }

    #[test]
    fn a_parent_is_a_trace_a_span_and_whether_it_is_sampled() {
        let field = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = Parent::of_traceparent(field.as_bytes()).unwrap();
        assert_eq!(parent.span_id.to_string(), "00f067aa0ba902b7");
        assert!(parent.is_sampled);
        assert_eq!(parent.to_traceparent(), field);
        let unsampled = Parent::of_traceparent(field.replace("-01", "-02").as_bytes()).unwrap();
        assert!(!unsampled.is_sampled, "other flags mean nothing here");
        for broken in ["-01", "00f067aa0ba902b7"] {
            for instead in ["-0", "-0G", "-0A", "0000000000000000", "00F067AA0BA902B7"] {
                let field = field.replace(broken, instead);
                assert_eq!(Parent::of_traceparent(field.as_bytes()), None, "{field}");
            }
        }
    }

    #[test]
    fn made_ids_differ() {
        let ids = TraceIds::new();
        assert_ne!(ids.next(), ids.next());
        assert_ne!(ids.next(), TraceIds::new().next());
    }
}
