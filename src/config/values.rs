//! Reads one value each. An error says what is wrong with the value; the caller adds where, and an
//! example.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::Rate;
use super::file;
use super::mistakes::{nearest, shown};
use crate::fence::Resource;
use crate::metrics::UNMATCHED_ROUTE;

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

/// The name of a service, as people see it in their traces.
pub(super) fn service(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 100 || text.chars().any(char::is_control) {
        return Err(format!("{} is no name of 1 to 100 characters", shown(text)));
    }
    Ok(text.to_owned())
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
