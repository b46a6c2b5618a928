use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const SHORT: ApiLimits = ApiLimits {
    connections: 2,
    client_connections: 2,
    body_bytes: 16,
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
    let (stop, tracker) = (shutdown.clone(), tasks.clone());
    let hits = LimitMetrics::register(&prometheus::Registry::new()).unwrap();
    let bounds = (ApiBounds::new(SHORT), hits);
    tasks.spawn(async move { serve(listener, router, bounds, stop, &tracker).await });
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
