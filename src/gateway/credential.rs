//! What the gateway proves itself to an upstream with: a field that it puts on every request.
//!
//! Invariant: the upstream sees one value of it, ours. The client's own field is gone, and so is
//! one whose name an application may take for the same: many servers hand `A_B` and `A-B` on under
//! one name. What `Connection` names was removed before, so it cannot remove ours.

use http::HeaderMap;

use crate::config::UpstreamCredential;

pub(super) fn put_on(credential: &UpstreamCredential, headers: &mut HeaderMap) {
    let name = &credential.header;
    while let Some(twin) = headers.keys().find(|other| is_twin(name.as_str(), other.as_str())) {
        let twin = twin.clone();
        headers.remove(twin);
    }
    headers.insert(name, credential.value.get());
}

/// Names are in lower case. Alike but for signs, and not the same.
fn is_twin(name: &str, other: &str) -> bool {
    let is_alike =
        |(a, b): (u8, u8)| a == b || !(a.is_ascii_alphanumeric() || b.is_ascii_alphanumeric());
    name.len() == other.len() && name != other && name.bytes().zip(other.bytes()).all(is_alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_are_alike_but_for_signs() {
        for twin in ["x_api_key", "x-api_key", "x.api-key"] {
            assert!(is_twin("x-api-key", twin), "{twin}");
        }
        for other in ["x-api-key", "xapikey", "x-api-keys", "y-api-key", "x-api0key"] {
            assert!(!is_twin("x-api-key", other), "{other}");
        }
    }
}
