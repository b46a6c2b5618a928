//! Keeps web pages out. A page that somebody looks at on this machine can send requests to its
//! loopback address, and with a name that its owner resolves anew to it (DNS rebinding) it can even
//! read the answers.

use std::net::IpAddr;

use axum::extract::Request;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Uri};

/// # Errors
/// The request comes from a page, or, with `only_loopback`, was sent to a name.
pub(super) fn check(request: &Request, only_loopback: bool) -> Result<(), String> {
    let headers = request.headers();
    if headers.contains_key(ORIGIN) {
        // No page is served here, so none can be the origin.
        return Err("a request with Origin comes from a web page; none may ask here".to_owned());
    }
    // `none`: typed into the address line.
    let is_own = |value: &HeaderValue| value == "none" || value == "same-origin";
    if !headers.get_all("sec-fetch-site").iter().all(is_own) {
        return Err("Sec-Fetch-Site says that another site's page asks; none may".to_owned());
    }
    if only_loopback && !names_loopback(request.uri(), headers) {
        return Err(
            "without credentials this listener answers only to the hosts localhost, 127.x.x.x \
                    and [::1]; set access.credentials, or use one of those"
                .to_owned(),
        );
    }
    Ok(())
}

/// Whether all that names a host names this machine. A request without any is no browser's.
fn names_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    let named = headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
    named.chain(uri.authority().map(http::uri::Authority::as_str)).all(is_loopback)
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        // The colons of `[::1]` separate no port.
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    address.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_few_names() {
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:8081", "[::1]", "[::1]:80"]
        {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            ":80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:8081",
            "10.0.0.1",
            "0.0.0.0",
            "127.1",
            "2130706433",
            "localhost@evil.example",
            "[::ffff:10.0.0.1]",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
