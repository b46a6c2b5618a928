//! Which format a scrape asks for (RFC 9110 §12.5.1).

use http::HeaderMap;
use http::header::ACCEPT;

/// What a scrape is answered in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' text format.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    const fn name(self) -> (&'static str, &'static str) {
        match self {
            Format::Text => ("text", "plain"),
            Format::OpenMetrics => ("application", "openmetrics-text"),
        }
    }

    const fn versions(self) -> &'static [&'static str] {
        match self {
            Format::Text => &["0.0.4"],
            Format::OpenMetrics => &["1.0.0"],
        }
    }
}

/// OpenMetrics only for those who name it, and who like it no less than the text: browsers and curl, which take
/// anything, get what people can read.
pub(crate) fn format(headers: &HeaderMap) -> Format {
    let ranges = || {
        let fields = headers.get_all(ACCEPT).iter().filter_map(|field| field.to_str().ok());
        fields.flat_map(|field| field.split(','))
    };
    let openmetrics = ranges().filter_map(|range| quality(range, Format::OpenMetrics));
    let text = ranges().filter_map(|range| quality(range, Format::Text));
    let best = |qualities: &mut dyn Iterator<Item = (u8, u16)>| qualities.max().unwrap_or((0, 0));
    let (how_named, openmetrics) = best(&mut { openmetrics });
    let (_, text) = best(&mut { text });
    if how_named == EXACTLY && openmetrics > 0 && openmetrics >= text {
        Format::OpenMetrics
    } else {
        Format::Text
    }
}

const EXACTLY: u8 = 2;

/// How exactly a range names the format, and its quality in thousandths; `None`: it does not.
fn quality(range: &str, format: Format) -> Option<(u8, u16)> {
    let mut parts = range.split(';').map(str::trim);
    let (kind, subtype) = parts.next()?.split_once('/')?;
    let (own_kind, own_subtype) = format.name();
    let is = |text: &str, own: &str| text.trim().eq_ignore_ascii_case(own);
    let how = match (kind, subtype) {
        _ if is(kind, own_kind) && is(subtype, own_subtype) => EXACTLY,
        _ if is(kind, own_kind) && subtype == "*" => 1,
        ("*", "*") => 0,
        _ => return None,
    };
    let mut quality = 1000;
    for parameter in parts {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        let value = value.trim().trim_matches('"');
        if is(name, "q") {
            quality = thousandths(value)?;
        } else if is(name, "version") && !format.versions().contains(&value) {
            return None;
        }
    }
    Some((how, quality))
}

fn thousandths(text: &str) -> Option<u16> {
    let quality: f32 = text.parse().ok().filter(|quality| (0.0..=1.0).contains(quality))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    Some((quality * 1000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [
            prometheus,
            "application/openmetrics-text",
            "text/plain, application/openmetrics-text",
            "Application/OpenMetrics-Text; version=\"1.0.0\"; charset=utf-8; q=0.7, text/plain;q=0.5",
        ] {
            assert_eq!(asked(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "application/*",
            "text/plain",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0.3, text/plain;q=0.5",
            "application/openmetrics-text;version=0.0.1, text/plain;q=0.5",
            "application/openmetrics-text;q=2",
            "application/json",
            ";;,/",
        ] {
            assert_eq!(asked(accept), Format::Text, "{accept}");
        }
    }

    fn asked(accept: &str) -> Format {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        format(&headers)
    }
}
