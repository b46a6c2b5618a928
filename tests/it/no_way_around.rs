//! No way around the fence: whatever the request looks like, the downstream sees it once under the
//! one fence of its resource, or it sees nothing.

use crate::support::downstream::{Downstream, assert_refused};
use crate::support::gateway::Gateway;
use crate::support::http::{Connection, assert_problem, exchange, raw, request, send};
use crate::support::nginx::Nginx;

#[test]
fn every_method_but_the_reads_is_a_write() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let writes = [
        "PUT",
        "POST",
        "PATCH",
        "DELETE",
        "MKCOL",
        "PROPFIND",
        "PROPPATCH",
        "LOCK",
        "UNLOCK",
        "PURGE",
        "QUERY",
        "SEARCH",
        "put",
        "get",
        "Get",
        "GETX",
        "M-SEARCH",
        "X",
    ];
    for method in writes {
        let before = api.seen().len();
        let answer = send(gateway.proxy, method, "/x", &[], b"b");
        assert_eq!((answer.status, answer.code().as_str()), (428, "fencing_token_required"));
        assert_eq!(api.seen().len(), before, "{method}");
        let token = [("Fencing-Token", "9")];
        assert_eq!(send(gateway.proxy, method, "/x", &token, b"b").status, 200, "{method}");
        assert_eq!(api.seen().len(), before + 1);
        assert_eq!(api.seen()[before].method, method);
        let stale = [("Fencing-Token", "8")];
        assert_eq!(send(gateway.proxy, method, "/x", &stale, b"b").status, 412, "{method}");
    }
    for method in ["GET", "OPTIONS"] {
        assert_eq!(send(gateway.proxy, method, "/x", &[], b"").status, 200, "{method}");
    }
}

#[test]
fn a_list_of_fenced_methods_has_no_gaps_beside_it() {
    let api = Downstream::start();
    let gateway =
        Gateway::with_route(api.address, "tokens = \"ordered\"\nfenced = [\"PUT\", \"MOVE\"]\n");
    for (method, fields) in [
        ("PUT", ""),
        ("put", ""),
        ("Put", ""),
        ("POST", "X-HTTP-Method-Override: PUT\r\n"),
        ("GET", "X-HTTP-Method: put\r\n"),
        ("MOVE", "Destination: /x\r\n"),
    ] {
        let answer = exchange(gateway.proxy, raw(method, b"/x", fields, ""));
        assert_refused(&api, &answer, 428, method);
    }
    let copy = "X-HTTP-Method-Override: MOVE\r\nDestination: /y\r\nFencing-Token: 1\r\n";
    assert_refused(
        &api,
        &exchange(gateway.proxy, raw("POST", b"/x", copy, "")),
        400,
        "a hidden MOVE",
    );
    assert_eq!(exchange(gateway.proxy, raw("POST", b"/x", "", "")).status, 200);
}

#[test]
fn connect_and_trace_are_never_passed_on() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let address = api.address.to_string();
    for (method, target) in [("CONNECT", address.as_str()), ("CONNECT", "/x"), ("TRACE", "/x")] {
        let bytes = raw(method, target.as_bytes(), "Fencing-Token: 9\r\n", "");
        let answer = exchange(gateway.proxy, bytes);
        assert!([400, 405].contains(&answer.status), "{method} {target}: {answer:?}");
        assert_refused(&api, &answer, answer.status, method);
        let allowed = answer.header("allow").unwrap_or_default();
        assert_eq!(answer.status == 405, allowed.contains("PUT") && !allowed.contains(method));
    }
}

#[test]
fn a_read_that_claims_to_be_a_write_needs_a_token() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let names = [
        "X-HTTP-Method-Override",
        "x-http-method-override",
        "X-HTTP-METHOD-OVERRIDE",
        "X-HTTP-Method",
        "X-Method-Override",
        "X-Original-Method",
        // Gateway interfaces (CGI, WSGI, Rack) cannot tell these from the former.
        "X_HTTP_METHOD_OVERRIDE",
        "X-HTTP_Method-Override",
    ];
    let values =
        ["PUT", "DELETE", "put", "delete", "NONSENSE", "", " ", "GET,PUT", "P U T", "\u{e9}"];
    for name in names {
        for value in values {
            for method in ["GET", "HEAD", "OPTIONS"] {
                let bytes = raw(method, b"/x", &format!("{name}: {value}\r\n"), "");
                let mut client = Connection::open(gateway.proxy);
                client.write(bytes);
                let answer = client.read_head();
                assert_eq!(answer.status, 428, "{method} {name}: {value:?}");
            }
        }
    }
    let twice = "X-HTTP-Method-Override: GET\r\nX-HTTP-Method-Override: DELETE\r\n";
    assert_eq!(exchange(gateway.proxy, raw("GET", b"/x", twice, "")).status, 428);
    assert_eq!(api.seen().len(), 0);

    let with_token = "X-HTTP-Method-Override: DELETE\r\nFencing-Token: 9\r\n";
    assert_eq!(exchange(gateway.proxy, raw("GET", b"/x", with_token, "")).status, 200);
    let older = "X-HTTP-Method-Override: DELETE\r\nFencing-Token: 8\r\n";
    assert_eq!(exchange(gateway.proxy, raw("GET", b"/x", older, "")).status, 412);
    let harmless = "X-HTTP-Method-Override: GET\r\n";
    assert_eq!(exchange(gateway.proxy, raw("GET", b"/x", harmless, "")).status, 200);
    assert_eq!(exchange(gateway.proxy, raw("POST", b"/x", harmless, "")).status, 428);
    assert_eq!(api.seen().len(), 2);
}

#[test]
fn a_field_that_names_another_target_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for name in ["X-Original-URL", "x-rewrite-url", "X_Original_URL", "X-REWRITE_URL"] {
        for method in ["GET", "PUT"] {
            let fields = format!("{name}: /other\r\nFencing-Token: 9\r\n");
            let answer = exchange(gateway.proxy, raw(method, b"/x", &fields, ""));
            assert_refused(&api, &answer, 400, name);
        }
    }
}

#[test]
fn a_copy_or_move_onto_another_resource_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(
        api.address,
        "[[route]]\nname = \"tree\"\npath = \"/tree/{*rest}\"\nresource = \"tree\"\n\
         tokens = \"ordered\"\n",
    );
    let token = "Fencing-Token: 9\r\n";
    for destination in [
        "/y",
        "http://localhost/y",
        "https://elsewhere/y",
        "/x/../y",
        "//x",
        "y",
        "",
        "/tree/x",
        "/x\r\nDestination: /y",
    ] {
        for method in ["MOVE", "COPY", "PUT"] {
            let fields = format!("{token}Destination: {destination}\r\n");
            let answer = exchange(gateway.proxy, raw(method, b"/x", &fields, ""));
            assert_refused(&api, &answer, 400, destination);
        }
    }
    for (from, to) in
        [("/tree/a", "/tree/b"), ("/tree/a", "http://localhost/tree/b/"), ("/x", "/%78")]
    {
        let fields = format!("{token}Destination: {to}\r\n");
        let answer = exchange(gateway.proxy, raw("MOVE", from.as_bytes(), &fields, ""));
        assert_eq!(answer.status, 200, "{from} {to}");
    }
}

#[test]
fn nginx_moves_nothing_onto_what_the_token_does_not_fence() {
    let nginx = Nginx::start();
    let gateway = Gateway::ordered(nginx.address, "");
    assert_eq!(gateway.put("/a", 1, "a").status, 201);
    assert_eq!(gateway.put("/b", 9, "b").status, 201);
    for method in ["MOVE", "COPY"] {
        for destination in ["/b", "http://localhost/b", "/%62"] {
            let fields = format!("Fencing-Token: 1\r\nDestination: {destination}\r\n");
            let answer = exchange(gateway.proxy, raw(method, b"/a", &fields, ""));
            assert_problem(&answer, 400, "unresolvable_resource", "not_forwarded");
        }
    }
    let mut stored = nginx.stored();
    stored.sort();
    assert_eq!(stored, [("/a".into(), b"a".to_vec()), ("/b".into(), b"b".to_vec())]);
}

#[test]
fn connection_cannot_take_the_token_away() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for value in [
        "Fencing-Token",
        "fencing-token",
        "close, Fencing-Token",
        "FENCING-TOKEN,keep-alive",
        "\tFencing-Token\t",
        "X-Fencing-Token",
        "close\r\nConnection: fencing-token",
    ] {
        let fields = format!("Connection: {value}\r\nFencing-Token: 9\r\n");
        let answer = exchange(gateway.proxy, raw("PUT", b"/x", &fields, "b"));
        assert_eq!(answer.code(), "ambiguous_fencing_token", "{value}");
        assert_refused(&api, &answer, 400, value);
    }
    let fields = "Connection: close, X-Private\r\nX-Private: 1\r\nFencing-Token: 9\r\n";
    assert_eq!(exchange(gateway.proxy, raw("PUT", b"/x", fields, "b")).status, 200);
    assert_eq!(api.seen()[0].header("x-private"), None);
    assert_eq!(api.tokens("/x"), [9]);
}

#[test]
fn repeated_and_conflicting_tokens_are_refused() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for fields in [
        "Fencing-Token: 9\r\nFencing-Token: 9\r\n",
        "Fencing-Token: 9\r\nfencing-token: 8\r\n",
        "X-Fencing-Token: 9\r\nX-Fencing-Token: 9\r\n",
        "Fencing-Token: 9\r\nX-Fencing-Token: 8\r\n",
        "Fencing-Token: 9\r\nX-Fencing-Token: \r\n",
        "Fencing-Token: 9\r\nX-Fencing-Token: x\r\n",
        "Fencing-Token: 9\r\nFencing_Token: 8\r\n",
        "Fencing_Token: 9\r\n",
    ] {
        let answer = exchange(gateway.proxy, raw("PUT", b"/x", fields, "b"));
        assert_refused(&api, &answer, 400, fields);
    }
    for fields in ["X-Fencing-Token: 9\r\n", "X-FENCING-TOKEN: 9\r\nFencing-Token: 9\r\n"] {
        assert_eq!(exchange(gateway.proxy, raw("PUT", b"/x", fields, "b")).status, 200, "{fields}");
    }
}

#[test]
fn an_upgrade_is_an_ordinary_request() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    for upgrade in ["websocket", "h2c", "TLS/1.0"] {
        let upgrade = format!(
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMA\r\n"
        );
        let before = api.seen().len();
        let answer = exchange(gateway.proxy, raw("POST", b"/x", &upgrade, "b"));
        assert_eq!(answer.code(), "fencing_token_required");
        assert_eq!(api.seen().len(), before);
        let fields = format!("{upgrade}Fencing-Token: 9\r\n");
        assert_eq!(exchange(gateway.proxy, raw("POST", b"/x", &fields, "b")).status, 200);
        assert_eq!(exchange(gateway.proxy, raw("GET", b"/x", &upgrade, "")).status, 200);
        let seen = api.seen();
        assert_eq!(seen.len(), before + 2);
        for name in ["upgrade", "connection", "http2-settings"] {
            assert!(seen.iter().all(|seen| seen.header(name).is_none()), "{name}");
        }
    }
}

#[test]
fn a_request_with_two_readings_of_its_length_or_host_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    let head = "PUT /x HTTP/1.1\r\nFencing-Token: 9\r\n";
    for rest in [
        "Host: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nbb",
        "Host: a\r\nContent-Length: 1, 1\r\n\r\nb",
        "Host: a\r\nContent-Length: +1\r\n\r\nb",
        "Host: a\r\nContent-Length: 0x1\r\n\r\nb",
        "Host: a\r\nContent-Length: -1\r\n\r\nb",
        "Host: a\r\nContent-Length: 99999999999999999999\r\n\r\nb",
        "Host: a\r\nContent-Length:\r\n\r\nb",
        "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n",
        "Host: a\r\nTransfer-Encoding: identity, chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n",
        "Host: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n",
        "Host: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n1\r\nb\r\n0\r\n\r\n",
        "Host: a\r\nTransfer-Encoding: xchunked\r\nContent-Length: 1\r\n\r\nb",
        "Host: a\r\nTransfer-Encoding : chunked\r\nContent-Length: 1\r\n\r\nb",
        "Host: a\r\nTransfer_Encoding: chunked\r\nContent-Length: 1\r\n\r\nb",
        "Host: a\r\nContent_Length: 5\r\nContent-Length: 1\r\n\r\nb",
        "Host: a\r\nHost: b\r\nContent-Length: 1\r\n\r\nb",
        "Host: a\r\nHost: a\r\nContent-Length: 1\r\n\r\nb",
        "Content-Length: 1\r\n\r\nb",
        "Host: a\r\nX-Fold: 1\r\n 2\r\nContent-Length: 1\r\n\r\nb",
        "Host: a\r\nX\0: 1\r\nContent-Length: 1\r\n\r\nb",
        "Host: a\r\nX: 1\rContent-Length: 1\r\n\r\nb",
        "Host : a\r\nContent-Length: 1\r\n\r\nb",
    ] {
        let answer = exchange(gateway.proxy, format!("{head}{rest}"));
        assert_refused(&api, &answer, 400, rest);
    }
    let old = "PUT /x HTTP/1.0\r\nFencing-Token: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_refused(&api, &exchange(gateway.proxy, old), 400, "chunked in HTTP/1.0");
}

/// Every request has an inner one where a server with another idea of its length would look for
/// one. The downstream must see the outer one alone.
#[test]
fn a_request_hidden_in_another_is_not_seen() {
    let inner = "PUT /inner HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let length = inner.len();
    let odd_case = format!("transfer-ENCODING: ChunKed\r\n\r\n{length:X}\r\n{inner}\r\n0\r\n\r\n");
    let extension =
        format!("Transfer-Encoding: chunked\r\n\r\n{length:x};a=\"b\"\r\n{inner}\r\n0\r\n\r\n");
    let trailer = format!(
        "Transfer-Encoding: chunked\r\nTrailer: Fencing-Token\r\n\r\n1\r\nb\r\n0\r\n\
         Fencing-Token: 99\r\nContent-Length: 7\r\nHost: b\r\n\r\n{inner}"
    );
    for rest in [odd_case, extension, trailer] {
        let api = Downstream::start();
        let gateway = Gateway::ordered(api.address, "");
        let mut client = Connection::open(gateway.proxy);
        client.write(format!("PUT /x HTTP/1.1\r\nHost: a\r\nFencing-Token: 9\r\n{rest}"));
        assert_eq!(client.read().status, 200, "{rest}");
        // Whatever comes next, if anything, is the inner request judged by itself: without a token.
        if let Ok(answer) = client.try_read_now() {
            assert_eq!(answer.status, 428, "{rest}");
        }
        // The connection to the downstream is clean.
        assert_eq!(gateway.put("/next", 9, "next").status, 200, "{rest}");
        let seen = api.seen();
        let targets: Vec<_> = seen.iter().map(|seen| seen.target.as_str()).collect();
        assert_eq!(targets, ["/x", "/next"], "{rest}");
        assert_eq!(api.tokens("/x"), [9]);
        assert_eq!(seen[1].body, b"next");
    }
}

#[test]
fn a_request_behind_a_refused_one_is_judged_by_itself() {
    let api = Downstream::start();
    let gateway = Gateway::ordered(api.address, "");
    assert_eq!(gateway.put("/x", 9, "first").status, 200);
    let hidden = request("PUT", "/x", &[], b"hidden");
    let stale = request("PUT", "/x", &[("Fencing-Token", "8")], &hidden);
    let none = request("PUT", "/x", &[], &hidden);
    let good = request("PUT", "/x", &[("Fencing-Token", "9")], b"second");
    let mut client = Connection::open(gateway.proxy);
    client.write([stale, none, good].concat());
    assert_eq!(client.read().code(), "stale_fencing_token");
    assert_eq!(client.read().code(), "fencing_token_required");
    assert_eq!(client.read().status, 200);
    let bodies: Vec<_> = api.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, [&b"first"[..], b"second"]);
}
