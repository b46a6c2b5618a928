//! Methods that a request claims in its query.
//!
//! Some frameworks take the method from a parameter, WordPress even from that of a GET: `?_method=DELETE`. Such
//! a claim counts like one in a header: the request may be what it says. Claims in bodies are not seen, and nor
//! is a parameter that is merely called `method`, which means something else in most APIs.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// Names of parameters, as [`folded`] spells them.
const NAMES: [&str; 5] =
    ["_method", "x_http_method_override", "x_http_method", "x_method_override", "_http_method"];

/// What the parameters of `query` claim to be the method, if any does.
pub(super) fn of_query(query: &str) -> impl Iterator<Item = Cow<'_, [u8]>> {
    query.split(['&', ';']).filter_map(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let is_claim = name.len() >= 7 && NAMES.contains(&folded(name).as_str());
        is_claim.then(|| percent_decode(value.as_bytes()).into())
    })
}

/// A parameter's name as the most tolerant server reads it: PHP takes `.method` and `[method` for `_method`, passes over
/// space before it and ends it at a NUL.
fn folded(name: &str) -> String {
    let decoded: Vec<u8> = percent_decode(name.as_bytes()).collect();
    let whole = decoded.split(|byte| *byte == 0).next().unwrap_or_default();
    let in_place = |byte: &u8| match byte {
        b'+' => '_',
        byte if byte.is_ascii_alphanumeric() => char::from(byte.to_ascii_lowercase()),
        _ => '_',
    };
    let begin = whole.iter().take_while(|byte| b" +".contains(byte)).count();
    whole[begin..].iter().map(in_place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(query: &str) -> Vec<String> {
        of_query(query).map(|claim| String::from_utf8_lossy(&claim).into_owned()).collect()
    }

    #[test]
    fn a_parameter_claims_a_method_however_it_is_spelled() {
        for query in [
            "_method=DELETE",
            "a=b&_method=DELETE",
            "a=b;_METHOD=DELETE&c",
            "%5Fmethod=DELETE",
            "_%6dethod=%44ELETE",
            ".method=DELETE",
            "[method=DELETE",
            "+_method=DELETE",
            "%20_method=DELETE",
            "_method%00x=DELETE",
            "X-HTTP-Method-Override=DELETE",
            "x_http_method=DELETE",
        ] {
            assert_eq!(claims(query), ["DELETE"], "{query}");
        }
        assert_eq!(claims("_method=GET&_method=PUT"), ["GET", "PUT"]);
        assert_eq!(claims("_method"), [""]);
        for query in ["", "method=DELETE", "a=_method", "a_method=DELETE", "_methods=DELETE"] {
            assert_eq!(claims(query), Vec::<String>::new(), "{query}");
        }
    }
}
