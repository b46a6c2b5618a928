//! The OpenAPI document against what is served.

use std::collections::BTreeSet;

use super::*;

/// Method, path as the document spells it, and what was answered.
type Served = (&'static str, &'static str, Answer);

#[tokio::test]
async fn the_openapi_document_tells_what_is_served() {
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.body;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut unseen = documented_answers(&document);
    for (method, path, answer) in serve_everything(&server).await {
        let status = answer.status.to_string();
        let spelled = format!("{method} {path} {status}");
        let schema = &document["paths"][path][method]["responses"][&status];
        assert!(schema.is_object(), "{spelled} is not documented: {}", answer.body);
        let content = answer.headers.get("content-type").map(|kind| kind.to_str().unwrap());
        match content {
            None => assert!(schema.get("content").is_none(), "{spelled}"),
            Some(kind) => {
                let schema = &schema["content"][kind]["schema"];
                assert!(schema.is_object(), "{spelled}: no {kind}");
                conforms(&document, schema, &answer.body, &spelled);
            }
        }
        for name in schema["headers"].as_object().into_iter().flatten().map(|(name, _)| name) {
            assert!(answer.headers.contains_key(name.as_str()), "{spelled}: no {name}");
        }
        unseen.remove(&spelled);
    }
    // Slow bodies have a test of their own; it takes a shorter time limit than the served one.
    unseen.retain(|answer| !answer.ends_with(" 408"));
    assert!(unseen.is_empty(), "documented, but not seen: {unseen:?}");
}

#[tokio::test]
async fn every_code_that_is_served_is_documented() {
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.body;
    let codes = document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"].clone();
    let known: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    for code in codes.as_array().unwrap() {
        assert!(known.contains(code.as_str().unwrap()), "{code} is no code");
    }
    for (_, path, answer) in serve_everything(&server).await {
        if answer.status >= 400 {
            let code = &answer.body["code"];
            assert!(codes.as_array().unwrap().contains(code), "{path} answers {code}");
        }
    }
}

fn documented_answers(document: &Value) -> BTreeSet<String> {
    let mut answers = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            for status in operation["responses"].as_object().into_iter().flatten() {
                answers.insert(format!("{method} {path} {}", status.0));
            }
        }
    }
    answers
}

/// Draws every answer out of the server that it can give, ending with a broken store.
async fn serve_everything(server: &Server) -> Vec<Served> {
    const LEASES: &str = "/v1/leases";
    const LEASE: &str = "/v1/leases/{resource}";
    const RENEW: &str = "/v1/leases/{resource}/renew";
    let large = "x".repeat(16 * 1024 + 1);
    let owner = json!({"owner": "a"});
    let lease = server.acquire("r", "a").await;
    let held = json!({"owner": "a", "token": lease["token"]});
    let token = lease["token"].as_str().unwrap();
    let mine = format!("/v1/leases/r?owner=a&token={token}");
    let other = format!("/v1/leases/r?owner=b&token={token}");
    let mut served = vec![
        ("get", "/openapi.json", server.get("/openapi.json").await),
        ("get", LEASES, server.get("/v1/leases").await),
        ("get", LEASES, server.get("/v1/leases?limit=1").await),
        ("get", LEASES, server.get("/v1/leases?limit=0").await),
        ("post", LEASE, server.post("/v1/leases/r", &owner).await),
        ("post", LEASE, server.post("/v1/leases/r", "{}").await),
        ("post", LEASE, server.post("/v1/leases/r", json!({"owner": "b"})).await),
        ("post", LEASE, server.post("/v1/leases/r", &large).await),
        ("get", LEASE, server.get("/v1/leases/r").await),
        ("get", LEASE, server.get("/v1/leases/%ff").await),
        ("get", LEASE, server.get("/v1/leases/none").await),
        // The second acquisition above made this token an old one.
        ("post", RENEW, server.post("/v1/leases/r/renew", &held).await),
        ("post", RENEW, server.post("/v1/leases/r/renew", "{}").await),
        ("post", RENEW, server.post("/v1/leases/r/renew", &large).await),
        ("delete", LEASE, server.delete(&other).await),
        ("delete", LEASE, server.delete("/v1/leases/r").await),
        ("delete", LEASE, server.delete("/v1/leases/none?owner=a&token=1").await),
    ];
    let lease = server.acquire("r", "a").await;
    let held = json!({"owner": "a", "token": lease["token"]});
    let now_mine = format!("/v1/leases/r?owner=a&token={}", lease["token"].as_str().unwrap());
    served.push(("post", RENEW, server.post("/v1/leases/r/renew", &held).await));
    served.push(("delete", LEASE, server.delete(&now_mine).await));
    server.break_store().await;
    served.extend(refused(&Server::guarded().await).await);
    served.push(("get", LEASES, server.get("/v1/leases").await));
    served.push(("get", LEASE, server.get("/v1/leases/r").await));
    served.push(("post", LEASE, server.post("/v1/leases/r", &owner).await));
    served.push(("post", RENEW, server.post("/v1/leases/r/renew", &held).await));
    served.push(("delete", LEASE, server.delete(&mine).await));
    served
}

/// Everything that can be asked, by somebody unknown and by somebody who may not.
async fn refused(server: &Server) -> Vec<Served> {
    let held = json!({"owner": "a", "token": "1"}).to_string();
    let asked = [
        (Method::GET, "get", "/v1/leases", "/v1/leases"),
        (Method::POST, "post", "/v1/leases/{resource}", "/v1/leases/r"),
        (Method::GET, "get", "/v1/leases/{resource}", "/v1/leases/r"),
        (Method::DELETE, "delete", "/v1/leases/{resource}", "/v1/leases/r?owner=a&token=1"),
        (Method::POST, "post", "/v1/leases/{resource}/renew", "/v1/leases/r/renew"),
    ];
    let mut served = Vec::new();
    for (method, name, path, target) in asked {
        let body =
            if path.ends_with("renew") { held.clone() } else { json!({"owner": "a"}).to_string() };
        let request = || server.request(method.clone(), target).body(body.clone());
        let unknown = answer(request()).await;
        let known = answer(request().bearer_auth("abc")).await;
        assert_eq!((unknown.status, known.status), (401, 403), "{name} {path}");
        served.extend([(name, path, unknown), (name, path, known)]);
    }
    served
}

/// Whether `value` has the fields that `schema` requires, and none that it does not know.
fn conforms(document: &Value, schema: &Value, value: &Value, place: &str) {
    let schema = match schema["$ref"].as_str() {
        Some(target) => document.pointer(target.trim_start_matches('#')).expect("it is there"),
        None => schema,
    };
    if let Some(items) = schema.get("items") {
        for item in value.as_array().unwrap() {
            conforms(document, items, item, place);
        }
    }
    let Some(properties) = schema["properties"].as_object() else { return };
    let fields = value.as_object().unwrap();
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(fields.contains_key(name.as_str().unwrap()), "{place}: {name} is missing");
    }
    for (name, value) in fields {
        let property = properties.get(name).unwrap_or_else(|| panic!("{place}: {name} is new"));
        conforms(document, property, value, place);
    }
}
