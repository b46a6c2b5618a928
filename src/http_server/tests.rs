use std::path::Path;

use axum::routing::get;
use rcgen::{CertificateParams, DnType, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::tls::{ClientCertificates, ClientFiles, Files, Live, ServerFiles, TlsMetrics};

const SHORT: ApiLimits = ApiLimits {
    connections: 2,
    client_connections: 2,
    body_bytes: 16,
    handshake_timeout: DEADLINE,
    timeout: Duration::from_millis(300),
    lease_waiters: 1,
    resource_lease_waiters: 1,
};
const DEADLINE: Duration = Duration::from_secs(20);

struct Server {
    address: std::net::SocketAddr,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

async fn server(router: Router) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
    let (stop, tracker, router) = (shutdown.clone(), tasks.clone(), complete(router));
    let hits = LimitMetrics::register(&prometheus::Registry::new()).unwrap();
    let bounds = (ApiBounds::new(SHORT), hits);
    tasks.spawn(async move { serve(listener, None, router, bounds, stop, &tracker).await });
    Server { address, shutdown, tasks }
}

/// Sends `request` and reads until the server closes the connection.
async fn exchange(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(DEADLINE, read).await.expect("the server closes").unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_head_that_does_not_end_is_dropped() {
    let server = server(Router::new()).await;
    assert_eq!(exchange(&server, "GET / HTTP/1.1\r\nhost: x\r\n").await, "");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let large = || async { vec![b'x'; 64 << 20] };
    let server = server(Router::new().route("/", get(large))).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    server.shutdown.cancel();
    server.tasks.close();
    tokio::time::timeout(DEADLINE, server.tasks.wait()).await.expect("the connection ends");
}

#[tokio::test]
async fn clients_beyond_the_limit_are_served_when_others_left() {
    let server = server(Router::new().route("/", get(async || "served"))).await;
    let first = TcpStream::connect(server.address).await.unwrap();
    let _second = TcpStream::connect(server.address).await.unwrap();
    drop(first);
    let request = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(exchange(&server, request).await.ends_with("served"));
}

#[tokio::test]
async fn what_the_router_refuses_is_a_problem_document() {
    let server = server(Router::new().route("/", get(async || "served"))).await;
    let answer =
        exchange(&server, "GET /no HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("no_route"), "{answer}");
    let answer =
        exchange(&server, "PATCH / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    assert!(answer.contains("method_not_allowed") && answer.contains("allow: GET"), "{answer}");
}

#[tokio::test]
async fn shutdown_lets_a_request_in_flight_finish() {
    let (entered, mut inside) = tokio::sync::mpsc::channel::<()>(1);
    let go = CancellationToken::new();
    let wait = go.clone();
    let handler = move || {
        let (entered, wait) = (entered.clone(), wait.clone());
        async move {
            entered.send(()).await.unwrap();
            wait.cancelled().await;
            "finished"
        }
    };
    let server = server(Router::new().route("/", get(handler))).await;
    let request = exchange(&server, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    let shut_down = async {
        inside.recv().await.unwrap();
        server.shutdown.cancel();
        server.tasks.close();
        go.cancel();
        server.tasks.wait().await;
    };
    let (answer, ()) = tokio::join!(request, shut_down);
    assert!(answer.ends_with("finished"), "{answer}");
    assert!(TcpStream::connect(server.address).await.is_err(), "nothing listens any more");
}

#[tokio::test]
async fn a_body_that_does_not_end_is_given_up() {
    let echo = async |body: Body| read_body(body).await;
    let server = server(Router::new().route("/", axum::routing::post(echo))).await;
    let answer =
        exchange(&server, "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc").await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request_timeout"), "{answer}");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_given_up() {
    let echo = async |body: Body| read_body(body).await;
    let server = server(Router::new().route("/", axum::routing::post(echo))).await;
    let post = |body: &str| {
        let length = body.len();
        format!(
            "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    assert!(exchange(&server, &post("sixteen bytes ok")).await.ends_with("sixteen bytes ok"));
    let answer = exchange(&server, &post("seventeen are not")).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
}

/// Writes a certificate that signed itself, and its key.
fn pair(dir: &Path, name: &str) -> crate::tls::KeyPair {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let [cert_file, key_file] = ["crt", "key"].map(|kind| dir.join(format!("{name}.{kind}")));
    std::fs::write(&cert_file, params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    crate::tls::KeyPair { cert_file, key_file }
}

/// What the handler of a request sees of the client's certificate.
async fn identity_seen(required: bool, shows: bool) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (own, client) = (pair(dir.path(), "server"), pair(dir.path(), "worker-1"));
    let clients = ClientCertificates { ca_file: client.cert_file.clone(), required };
    let files = ServerFiles {
        cert_file: own.cert_file.clone(),
        key_file: own.key_file,
        clients: Some(clients),
        http2: false,
    };
    let metrics = TlsMetrics::register(&prometheus::Registry::new()).unwrap();
    let tls = Arc::new(Live::open("listen.leases", files, &metrics).unwrap());
    let failed = metrics.handshakes_failed("leases");
    let handshakes = Handshakes { tls, failed };
    let seen = async |identity: Option<Extension<PeerIdentity>>| {
        identity.map_or("nobody".to_owned(), |Extension(peer)| peer.names().join(","))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let tracker = tasks.clone();
    let router = Router::new().route("/", get(seen));
    let hits = LimitMetrics::register(&prometheus::Registry::new()).unwrap();
    let bounds = (ApiBounds::new(SHORT), hits);
    let served =
        async move { serve(listener, Some(handshakes), router, bounds, stop, &tracker).await };
    tasks.spawn(served);
    let files = ClientFiles {
        server_name: "localhost".try_into().unwrap(),
        ca_file: Some(own.cert_file),
        identity: shows.then_some(client),
        http2: false,
    };
    let contents: Vec<_> = files.paths().iter().map(|path| std::fs::read(path).unwrap()).collect();
    let (config, _) = files.build(&contents).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(files.server_name, stream).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    // Who is sent away may see it here already.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap().rsplit("\r\n").next().unwrap().to_owned()
}

#[tokio::test]
async fn a_handler_sees_whom_a_verified_client_certificate_names() {
    assert_eq!(identity_seen(true, true).await, "CN=worker-1,DNS:localhost");
    assert_eq!(identity_seen(false, true).await, "CN=worker-1,DNS:localhost");
    assert_eq!(identity_seen(false, false).await, "nobody");
    assert_eq!(identity_seen(true, false).await, "", "it is sent away");
}
