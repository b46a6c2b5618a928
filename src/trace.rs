//! The id that ties a request's answer, its log lines and its trace together.

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
    fn made_ids_differ() {
        let ids = TraceIds::new();
        assert_ne!(ids.next(), ids.next());
        assert_ne!(ids.next(), TraceIds::new().next());
    }
}
