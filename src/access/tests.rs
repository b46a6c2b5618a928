//! What a guarded listener answers; `tests/it/access` has the rest, with the real binary.

use axum::body::Body;
use axum::routing::get;
use http::{Method, StatusCode};
use hyper_util::service::TowerToHyperService;

use super::*;

const CREDENTIALS: &str = "[[credential]]\nname = \"w\"\nmay = \"admin.metrics\"\n\
    sha256 = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n";

fn guarded(credentials: Option<&str>) -> Router {
    let file = credentials.map(|text| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Arc::new(LiveFile::open(file.path(), Credentials::parse).unwrap())
    });
    let access = Access::new(file, Clock::new(), &Registry::new()).unwrap();
    let router = Router::new()
        .route("/open", get(async || "open"))
        .route("/mine", get(async |caller: Caller| caller.name().to_owned()));
    access.guard(Listener::Admin, &["/open"], router)
}

async fn status(
    router: &Router,
    method: Method,
    path: &str,
    fields: &[(&str, &str)],
) -> StatusCode {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    let service = TowerToHyperService::new(router.clone());
    hyper::service::Service::call(&service, request).await.unwrap().status()
}

#[tokio::test]
async fn nobody_unknown_learns_even_which_paths_there_are() {
    let router = guarded(Some(CREDENTIALS));
    for (method, path) in
        [(Method::GET, "/mine"), (Method::GET, "/none"), (Method::PUT, "/mine"), (Method::GET, "/")]
    {
        assert_eq!(status(&router, method, path, &[]).await, 401, "{path}");
    }
    assert_eq!(status(&router, Method::GET, "/open", &[]).await, 200);
    let known = [("authorization", "bearer  abc ")];
    assert_eq!(status(&router, Method::GET, "/mine", &known).await, 200);
    assert_eq!(status(&router, Method::GET, "/none", &known).await, 404);
    assert_eq!(status(&router, Method::PUT, "/mine", &known).await, 405);
    for wrong in ["Bearer ab", "Bearer", "Bearer ", "Basic abc", "abc", "Bearerabc"] {
        let fields = [("authorization", wrong)];
        assert_eq!(status(&router, Method::GET, "/mine", &fields).await, 401, "{wrong}");
    }
    let twice = [("authorization", "Bearer abc"), ("authorization", "Bearer abc")];
    assert_eq!(status(&router, Method::GET, "/mine", &twice).await, 401);
}

#[tokio::test]
async fn no_web_page_gets_in() {
    let open = guarded(None);
    let local = ("host", "127.0.0.1:9090");
    assert_eq!(status(&open, Method::GET, "/mine", &[local]).await, 200);
    let typed = [local, ("sec-fetch-site", "none")];
    assert_eq!(status(&open, Method::GET, "/mine", &typed).await, 200);
    for refused in [
        &[("host", "evil.example:9090")][..],
        &[local, ("host", "evil.example")],
        &[local, ("origin", "http://evil.example")],
        &[local, ("origin", "null")],
        &[local, ("origin", "http://127.0.0.1:9090")],
        &[local, ("sec-fetch-site", "cross-site")],
        &[local, ("sec-fetch-site", "same-site")],
    ] {
        assert_eq!(status(&open, Method::GET, "/mine", refused).await, 403, "{refused:?}");
    }
    assert_eq!(status(&open, Method::GET, "http://evil.example/mine", &[local]).await, 403);
    // With credentials the name does not matter: a page does not know the token.
    let closed = guarded(Some(CREDENTIALS));
    let named = [("host", "gateway.internal"), ("authorization", "Bearer abc")];
    assert_eq!(status(&closed, Method::GET, "/mine", &named).await, 200);
    let page = [("authorization", "Bearer abc"), ("origin", "http://evil.example")];
    assert_eq!(status(&closed, Method::GET, "/mine", &page).await, 403);
}

#[tokio::test]
async fn a_verified_certificate_is_a_credential_and_a_token_beside_it_counts() {
    use rcgen::{CertificateParams, DnType, KeyPair};
    let text = CREDENTIALS.to_owned()
        + "[[credential]]\nname = \"c\"\nmay = \"admin.metrics\"\ncertificate = \"CN=worker-1\"\n";
    let router = guarded(Some(&text));
    let ask = async |name: &str, token: Option<&str>| {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let mut request = Request::builder().uri("/mine");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(PeerIdentity::of(certificate.der()));
        let service = TowerToHyperService::new(router.clone());
        let answer = hyper::service::Service::call(&service, request).await.unwrap();
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 4096).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(ask("worker-1", None).await, (200, "c".to_owned()));
    assert_eq!(ask("worker-1", Some("abc")).await, (200, "w".to_owned()));
    assert_eq!(ask("worker-1", Some("wrong")).await.0, 401);
    assert_eq!(ask("worker-2", None).await.0, 401);
}
