//! The table. Each row says what the bug was, in short; the number leads to the rest.

#![allow(clippy::too_many_lines, reason = "tables")]

mod framing;

/// What becomes of a request.
pub enum Expected {
    /// It is refused with this status and code.
    Refused(u16, &'static str),
    /// It is forwarded, as a write to this resource with this content.
    Done(&'static str, &'static str),
}

/// A bug, and bytes that would make use of it. `{t}` stands for a token that is good.
pub struct Row {
    pub id: &'static str,
    pub what: &'static str,
    pub bytes: String,
    pub answers: Vec<Expected>,
}

const TARGET: &str = "unresolvable_resource";
const REQUEST: &str = "invalid_request";
/// A request that has no token: found where somebody looks for one, it is refused with 428.
const INNER: &str = "PUT /n/inner HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nX";

pub fn rows() -> Vec<Row> {
    [targets(), fields(), methods(), framing::rows()].into_iter().flatten().collect()
}

/// A write of `x`.
fn put(target: &str, fields: &str) -> String {
    with_length(target, fields, "x")
}

fn with_length(target: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    unframed(target, &format!("{fields}Content-Length: {length}\r\n\r\n{body}"))
}

/// A write whose length is said in `rest`.
fn unframed(target: &str, rest: &str) -> String {
    format!("PUT {target} HTTP/1.1\r\nHost: test\r\nFencing-Token: {{t}}\r\n{rest}")
}

fn refused(id: &'static str, what: &'static str, bytes: String, code: &'static str) -> Row {
    Row { id, what, bytes, answers: vec![Expected::Refused(400, code)] }
}

fn done(
    id: &'static str,
    what: &'static str,
    bytes: String,
    resource: &'static str,
    content: &'static str,
) -> Row {
    Row { id, what, bytes, answers: vec![Expected::Done(resource, content)] }
}

fn targets() -> Vec<Row> {
    let target = |id, what, target| refused(id, what, put(target, ""), TARGET);
    vec![
        target("CVE-2019-9901", "Envoy: dot segments are not resolved", "/n/open/../x"),
        target("CVE-2021-29492", "Envoy: %2F is not taken for a slash", "/n%2Fx"),
        target("CVE-2021-29492", "Envoy: %5C is not taken for a slash", "/n%5cx"),
        target("CVE-2021-31920", "Istio: doubled slashes are not merged", "/n//x"),
        target("CVE-2021-39156", "Istio: what follows # counts as path", "/n/x#/y"),
        target("CVE-2023-45539", "HAProxy: # is passed on in the target", "/n/x#.png"),
        target("CVE-2025-66490", "Traefik: encoded characters hide a path, %2F", "/n/%2f/x"),
        target("CVE-2025-66490", "Traefik: encoded characters hide a path, %3B", "/n/x%3By"),
        target("CVE-2025-66490", "Traefik: encoded characters hide a path, %00", "/n/x%00"),
        target("CVE-2025-66490", "Traefik: encoded characters hide a path, %25", "/n/x%25"),
        target("CVE-2026-48020", "Traefik: a prefix that ends in dots is cut off", "/n../x"),
        target(
            "CVE-2026-40912",
            "Traefik: a dot in percent-encoding before a prefix is cut off",
            "/n%2e/x",
        ),
        target("CVE-2020-5902", "F5 BIG-IP: ..; is a dot segment to Tomcat alone", "/n/y/..;/x"),
        target("CVE-2007-0450", "Tomcat behind a proxy: backslashes are slashes", "/n\\x"),
        target("CVE-2021-41773", "Apache httpd: .%2e is a dot segment", "/n/y/.%2e/x"),
        target(
            "CVE-2021-42013",
            "Apache httpd: %%32%65 is a dot, decoded twice",
            "/n/y/%%32%65%%32%65/x",
        ),
        target("CVE-2000-0884", "IIS: %c0%af is a slash in overlong UTF-8", "/n%c0%afx"),
        target("CVE-2001-0333", "IIS: %255c is a backslash, decoded twice", "/n%255cx"),
        target(
            "CVE-2023-25690",
            "Apache httpd: %0d%0a in a path splits the request",
            "/n/x%0d%0aFencing-Token:%209",
        ),
        target("no number: %u", "IIS: %u002f is a slash", "/n%u002fx"),
        target(
            "no number: Windows names",
            "a dot or a space at a name's end is cut off",
            "/n/x%20",
        ),
        refused(
            "no number: absolute form",
            "the target's host and Host differ",
            put("http://other/n/x", ""),
            TARGET,
        ),
        refused(
            "no number: absolute form",
            "the scheme is not HTTP's",
            put("ftp://test/n/x", ""),
            TARGET,
        ),
        refused(
            "no number: absolute form",
            "a user name before the host",
            put("http://test@other/n/x", ""),
            TARGET,
        ),
        done(
            "CVE-2021-39155",
            "Istio: the case of a host matters (it plays no part in a resource)",
            put("http://TEST/n/x", ""),
            "/n/x",
            "x",
        ),
        done(
            "no number: query",
            "a query with dot segments is no path",
            put("/n/%78?/../y", ""),
            "/n/x",
            "x",
        ),
    ]
}

fn fields() -> Vec<Row> {
    let field = |id, what, fields| refused(id, what, put("/n/x", fields), REQUEST);
    let doubled = "ambiguous_fencing_token";
    vec![
        field(
            "CVE-2022-31813",
            "Apache httpd: Connection takes X-Forwarded-For away",
            "X-Forwarded-For: a\r\nConnection: X-Forwarded-For\r\n",
        ),
        field(
            "CVE-2024-45410",
            "Traefik: Connection takes X-Forwarded-Host away",
            "Connection: close, x-forwarded-HOST\r\n",
        ),
        field(
            "CVE-2025-48865",
            "Fabio: Connection takes fields of the proxy away",
            "Connection: X-Real-IP\r\n",
        ),
        field("no number: Connection", "Connection takes the host away", "Connection: Host\r\n"),
        field(
            "no number: Connection",
            "Connection takes the length away",
            "Connection: Content-Length\r\n",
        ),
        field(
            "no number: Connection",
            "Connection takes the credentials away",
            "Connection: keep-alive, Authorization\r\n",
        ),
        field(
            "CVE-2025-64484",
            "oauth2-proxy: X_Forwarded_User is X-Forwarded-User to the API",
            "X_Forwarded_User: root\r\n",
        ),
        field("CVE-2025-64484", "the same for the token", "X_Fencing_Token: 99\r\n"),
        field(
            "no number: CGI names",
            "Fencing.Token is Fencing-Token to some gateway interfaces",
            "Fencing.Token: 99\r\n",
        ),
        refused(
            "CVE-2026-26308",
            "Envoy: of several values of a field the first is judged",
            put("/n/x", "Fencing-Token: 1\r\n"),
            doubled,
        ),
        refused(
            "CVE-2022-31813",
            "the same for the token",
            put("/n/x", "Connection: Fencing-Token\r\n"),
            doubled,
        ),
        refused(
            "CVE-2018-14773",
            "Symfony, Zend: X-Original-URL is the target",
            put("/n/x", "X-Original-URL: /n/y\r\n"),
            TARGET,
        ),
        refused(
            "CVE-2018-14773",
            "Symfony, Zend: X-Rewrite-URL is the target",
            put("/n/x", "X_Rewrite_URL: /n/y\r\n"),
            REQUEST,
        ),
        field("no number: Host", "two Host fields", "Host: other\r\n"),
        field(
            "no number: Expect",
            "an expectation that nobody knows",
            "Expect: 100-continue, x\r\n",
        ),
        refused(
            "no number: Host",
            "none",
            "PUT /n/x HTTP/1.1\r\nFencing-Token: {t}\r\nContent-Length: 1\r\n\r\nx".into(),
            REQUEST,
        ),
        refused(
            "no number: Host",
            "a path in it",
            "PUT /n/x HTTP/1.1\r\nHost: a/b\r\nFencing-Token: {t}\r\nContent-Length: 1\r\n\r\nx"
                .into(),
            REQUEST,
        ),
        field("CVE-2023-25725", "HAProxy: fields after one without a name are lost", ": a\r\n"),
        field("CVE-2019-20444", "Netty: a line without a colon is a field", "X\r\n"),
        field(
            "CVE-2019-16276",
            "Go: a space before the colon is no part of the name",
            "Transfer-Encoding : chunked\r\n",
        ),
        field("CVE-2019-16869", "Netty: the same", "Transfer-Encoding : chunked\r\n"),
        field("CVE-2021-22959", "Node: the same", "X : chunked\r\n"),
    ]
}

fn methods() -> Vec<Row> {
    use Expected::Refused;
    let read =
        |fields: &str, target: &str| format!("GET {target} HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
    let needs_token = |what, bytes| Row {
        id: "no number: method override",
        what,
        bytes,
        answers: vec![Refused(428, "fencing_token_required")],
    };
    vec![
        needs_token(
            "a field makes a GET a DELETE",
            read("X-HTTP-Method-Override: DELETE\r\n", "/n/x"),
        ),
        needs_token("in another spelling", read("X_HTTP_Method: DELETE\r\n", "/n/x")),
        needs_token(
            "a parameter makes a GET a DELETE (WordPress)",
            read("", "/n/x?a=b&_method=DELETE"),
        ),
        needs_token("in another spelling (PHP)", read("", "/n/x?.%6dethod=DELETE")),
        needs_token(
            "lower case is another method",
            "get /n/x HTTP/1.1\r\nHost: test\r\n\r\n".into(),
        ),
        Row {
            id: "no number: TRACE",
            what: "it sends credentials back",
            bytes: "TRACE /n/x HTTP/1.1\r\nHost: test\r\nFencing-Token: {t}\r\n\r\n".into(),
            answers: vec![Refused(405, "method_not_allowed")],
        },
        Row {
            id: "no number: CONNECT",
            what: "it opens a tunnel past the fence",
            bytes: "CONNECT test:80 HTTP/1.1\r\nHost: test:80\r\nFencing-Token: {t}\r\n\r\n".into(),
            answers: vec![Refused(405, "method_not_allowed")],
        },
        refused(
            "no number: asterisk",
            "POST *",
            "POST * HTTP/1.1\r\nHost: test\r\nFencing-Token: {t}\r\nContent-Length: 1\r\n\r\nx"
                .into(),
            TARGET,
        ),
    ]
}
