//! Reads `[access]`, and what an upstream is given to know the gateway by. Both are files that are
//! read anew while the gateway runs; what is wrong with them at the start is a mistake like any other.

use std::path::Path;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use super::Access;
use super::mistakes::shown;
use super::reader::Reader;
use super::values;
use crate::access::Credentials;
use crate::live_file::{LiveFile, Parse};

/// Servers take no longer fields.
const CREDENTIAL_BYTES: usize = 8 * 1024;

/// The field that an upstream knows the gateway by.
#[derive(Clone, Debug)]
pub struct UpstreamCredential {
    /// Its name.
    pub header: HeaderName,
    /// Its value, marked as sensitive.
    pub value: Arc<LiveFile<HeaderValue>>,
}

/// Whether both follow the same file.
impl PartialEq for UpstreamCredential {
    fn eq(&self, other: &UpstreamCredential) -> bool {
        self.header == other.header && Arc::ptr_eq(&self.value, &other.value)
    }
}

impl Eq for UpstreamCredential {}

pub(super) fn access(mut from: Reader<'_>) -> Option<Access> {
    let credentials = live(&mut from, "credentials", Credentials::parse);
    let open_metrics =
        from.read("metrics", values::choice(&[("credential", false), ("open", true)]));
    Some(Access { credentials: credentials?, open_metrics: open_metrics? })
}

pub(super) fn upstream_credential(from: &mut Reader<'_>) -> Option<Option<UpstreamCredential>> {
    let value = live(from, "credential_file", field_value);
    let header = from.read_if_set("credential_header", field_name);
    if header.is_some() && !from.is_set("credential_file") {
        let place = from.place("credential_header");
        let message = "upstream.credential_header: upstream.credential_file is missing; it holds \
                       the field's value";
        from.mistakes.push(&place, message);
        return None;
    }
    let header = header.unwrap_or(Some(http::header::AUTHORIZATION))?;
    Some(value?.map(|value| UpstreamCredential { header, value }))
}

/// The file that a key names, if it is set; `None`: it cannot be used.
fn live<T: Clone>(
    from: &mut Reader<'_>,
    name: &str,
    parse: Parse<T>,
) -> Option<Option<Arc<LiveFile<T>>>> {
    let read = from.read_if_set(name, |path| {
        LiveFile::open(Path::new(path), parse).map(Arc::new).map_err(|wrong| {
            let wrong: Vec<_> = wrong.iter().map(|why| format!("{} {why}", shown(path))).collect();
            wrong.join("; ")
        })
    });
    read.map_or(Some(None), |file| file.map(Some))
}

/// The whole of the file but for the end of its last line.
fn field_value(text: &str) -> Result<HeaderValue, Vec<String>> {
    let text = text.trim_end_matches(['\r', '\n']);
    let is_value = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if text.is_empty() {
        return Err(vec!["is empty".to_owned()]);
    }
    if text.len() > CREDENTIAL_BYTES || text.trim() != text || !text.bytes().all(is_value) {
        return Err(vec![
            "is no value of a header field: one line of ASCII, 8 KiB at most".to_owned(),
        ]);
    }
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| vec!["is no value of a header field".to_owned()])?;
    value.set_sensitive(true);
    Ok(value)
}

/// Those that mean something for the message itself, or that the gateway sets besides, cannot be a
/// credential, in whatever signs they are spelt: it would take their place.
fn field_name(text: &str) -> Result<HeaderName, String> {
    const TAKEN: [&str; 20] = [
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "fencing-token",
        "x-fencing-token",
        "traceparent",
        "tracestate",
        "destination",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-real-ip",
    ];
    let plain = |name: &HeaderName| {
        name.as_str().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
    };
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) if !TAKEN.contains(&&*plain(&name)) => Ok(name),
        Ok(_) => Err(format!("{} has another meaning already", shown(text))),
        Err(_) => Err(format!("{} is no name of a header field", shown(text))),
    }
}
