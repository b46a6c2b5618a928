mod documented;

use std::net::SocketAddr;

use prometheus::Registry;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use super::*;
use crate::access::{Credentials, TokenHash};
use crate::config::ApiLimits;
use crate::coordinator::Embedded;
use crate::http_server;
use crate::live_file::LiveFile;
use crate::metrics::{Operation, StoreMetrics};
use crate::store::Database;

const DEADLINE: Duration = Duration::from_secs(20);
/// Acquisitions that may wait.
const WAITERS: usize = 6;

/// The lease API on a port of its own, over a store in a directory of its own.
struct Server {
    address: SocketAddr,
    client: Client,
    database: Database,
    router: Router,
    metrics: LeaseMetrics,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    _directory: tempfile::TempDir,
}

struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: Value,
}

fn bounds() -> (ApiBounds, LimitMetrics) {
    let limits = ApiLimits {
        connections: 1024,
        client_connections: 1024,
        body_bytes: 16 * 1024,
        handshake_timeout: Duration::from_secs(10),
        timeout: Duration::from_secs(10),
        lease_waiters: WAITERS,
        resource_lease_waiters: WAITERS,
    };
    (ApiBounds::new(limits), LimitMetrics::register(&Registry::new()).unwrap())
}

impl Server {
    async fn start() -> Server {
        Server::with_access(|clock| Access::new(None, clock, &Registry::new()).unwrap()).await
    }

    /// Knows one token, `abc`, which allows nothing but to read the lease of `x`.
    async fn guarded() -> Server {
        let file = tempfile::NamedTempFile::new().unwrap();
        let hash = TokenHash::of(b"abc");
        let text = format!(
            "[[credential]]\nname = 'w'\nsha256 = '{hash}'\nmay = 'lease.read'\nresources = 'x'\n"
        );
        std::fs::write(file.path(), text).unwrap();
        let known = Arc::new(LiveFile::open(file.path(), Credentials::parse).unwrap());
        Server::with_access(|clock| Access::new(Some(known), clock, &Registry::new()).unwrap())
            .await
    }

    async fn with_access(access: impl FnOnce(Clock) -> Arc<Access>) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let (clock, tasks) = (Clock::new(), TaskTracker::new());
        let path = directory.path().join("store.db");
        let store_metrics = StoreMetrics::register(&Registry::new()).unwrap();
        let database = Database::open(&path, clock, &tasks, store_metrics).await.unwrap();
        let metrics = LeaseMetrics::register(&Registry::new()).unwrap();
        let embedded = Embedded::start(&database, clock, &tasks, metrics.clone()).await.unwrap();
        let shutdown = CancellationToken::new();
        let (access, bounds) = (access(clock), bounds());
        let router = router(
            Arc::new(embedded),
            &access,
            clock,
            metrics.clone(),
            bounds.clone(),
            shutdown.clone(),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (routes, stop, tracker) = (router.clone(), shutdown.clone(), tasks.clone());
        tasks.spawn(async move {
            http_server::serve(listener, None, routes, bounds, stop, &tracker).await
        });
        let client = Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        Server {
            address,
            client,
            database,
            router,
            metrics,
            shutdown,
            tasks,
            _directory: directory,
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    async fn get(&self, path: &str) -> Answer {
        answer(self.request(Method::GET, path)).await
    }

    async fn delete(&self, path: &str) -> Answer {
        answer(self.request(Method::DELETE, path)).await
    }

    async fn post(&self, path: &str, body: impl ToString) -> Answer {
        answer(self.request(Method::POST, path).body(body.to_string())).await
    }

    async fn acquire(&self, resource: &str, owner: &str) -> Value {
        let body = json!({"owner": owner, "ttl_ms": 3_600_000});
        let acquired = self.post(&format!("/v1/leases/{resource}"), body).await;
        assert_eq!(acquired.status, 201, "{}", acquired.body);
        acquired.body
    }

    async fn break_store(&self) {
        let broken = self.database.call(Operation::Lease, |connection| {
            Box::pin(async move { sqlx::query("DROP TABLE leases").execute(connection).await })
        });
        broken.await.unwrap();
    }

    async fn until_waiters(&self, count: i64) {
        let look = async {
            while self.metrics.waiters.get() != count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(DEADLINE, look).await.expect("so many wait");
    }
}

async fn answer(request: RequestBuilder) -> Answer {
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let body = answer.bytes().await.unwrap();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Answer { status, headers, body }
}

impl Answer {
    #[track_caller]
    fn is_problem(&self, status: u16, code: &str, outcome: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.body["status"], status);
        assert_eq!(self.body["code"], code, "{}", self.body);
        assert_eq!(self.body["outcome"], outcome);
        assert_eq!(self.headers["content-type"], "application/problem+json");
    }
}

#[tokio::test]
async fn a_lease_is_acquired_shown_renewed_and_released() {
    let server = Server::start().await;
    let acquired = server.post("/v1/leases/a%2Fb", json!({"owner": "w"})).await;
    assert_eq!(acquired.status, 201);
    let lease = acquired.body;
    let token: u64 = lease["token"].as_str().unwrap().parse().unwrap();
    assert_eq!(lease["resource"], "a/b");
    assert_eq!(lease["owner"], "w");
    assert_eq!(lease["lease"], format!("{token:x}"));
    assert_eq!(lease["ttl_ms"], 10_000);
    assert!(lease["acquired_at"].as_str().unwrap().ends_with('Z'));

    assert_eq!(server.get("/v1/leases/a%2fb").await.body, lease);
    let body = json!({"owner": "w", "token": token.to_string(), "ttl_ms": 60_000});
    let renewed = server.post("/v1/leases/a%2Fb/renew", body).await;
    assert_eq!((renewed.status, &renewed.body["ttl_ms"]), (200, &json!(60_000)));
    assert!(renewed.body["expires_at"].as_str() > lease["expires_at"].as_str());

    let path = format!("/v1/leases/a%2Fb?owner=w&token={token}");
    assert_eq!(server.delete(&path).await.status, 204);
    server.get("/v1/leases/a%2Fb").await.is_problem(404, "lease_not_found", "not_forwarded");
    server.delete(&path).await.is_problem(404, "lease_not_found", "not_forwarded");
}

#[tokio::test]
async fn a_held_lease_is_refused_with_its_holder_and_when_to_retry() {
    let server = Server::start().await;
    let lease = server.acquire("r", "a").await;
    let refused = server.post("/v1/leases/r", json!({"owner": "b"})).await;
    refused.is_problem(409, "lease_held", "not_forwarded");
    assert_eq!(refused.body["resource"], "r");
    let holder = json!({
        "owner": "a", "token": lease["token"], "expires_at": lease["expires_at"]
    });
    assert_eq!(refused.body["holder"], holder);
    let seconds: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&seconds), "{seconds}");
    assert!(!refused.headers.contains_key("x-should-retry"));
}

#[tokio::test]
async fn what_is_not_the_callers_is_left_as_it_is() {
    let server = Server::start().await;
    let lease = server.acquire("r", "a").await;
    let token = lease["token"].as_str().unwrap();
    for (owner, token) in [("b", token), ("a", "9223372036854775807")] {
        let body = json!({"owner": owner, "token": token});
        let lost = server.post("/v1/leases/r/renew", body).await;
        lost.is_problem(409, "lease_lost", "not_forwarded");
        assert_eq!(lost.body["presented_token"], token);
        assert_eq!(lost.headers["x-should-retry"], "false");
        let path = format!("/v1/leases/r?owner={owner}&token={token}");
        server.delete(&path).await.is_problem(403, "owner_mismatch", "not_forwarded");
    }
    assert_eq!(server.get("/v1/leases/r").await.body, lease);
}

#[tokio::test]
async fn bad_requests_are_told_what_is_wrong() {
    let server = Server::start().await;
    let bodies = [
        ("", "EOF"),
        ("[", "EOF"),
        ("{}", "missing field `owner`"),
        (r#"{"owner":""}"#, "1 to 256 bytes"),
        (r#"{"owner":"a\nb"}"#, "without control characters"),
        (r#"{"owner":"a","owner":"b"}"#, "duplicate field"),
        (r#"{"owner":"a","ttl":5}"#, "unknown field `ttl`"),
        (r#"{"owner":"a","ttl_ms":99}"#, "ttl_ms is 99; it must be 100 to 3600000"),
        (r#"{"owner":"a","ttl_ms":3600001}"#, "100 to 3600000"),
        (r#"{"owner":"a","ttl_ms":-1}"#, "invalid value"),
        (r#"{"owner":"a","wait_ms":3600001}"#, "wait_ms is 3600001"),
        (r#"{"owner":"a"} x"#, "trailing"),
    ];
    for (body, detail) in bodies {
        let refused = server.post("/v1/leases/r", body).await;
        refused.is_problem(400, "invalid_request", "not_forwarded");
        assert!(refused.body["detail"].as_str().unwrap().contains(detail), "{}", refused.body);
        assert_eq!(refused.body["resource"], "r");
    }
    for token in ["", "0", "01", "-1", "1.5", "9223372036854775808"] {
        let body = json!({"owner": "a", "token": token});
        let refused = server.post("/v1/leases/r/renew", body).await;
        refused.is_problem(400, "invalid_request", "not_forwarded");
    }
    for query in ["", "?owner=a", "?token=1", "?owner=a&token=x", "?owner=a&token=1&x=1"] {
        let refused = server.delete(&format!("/v1/leases/r{query}")).await;
        refused.is_problem(400, "invalid_request", "not_forwarded");
    }
    for query in ["limit=0", "limit=1001", "limit=x", "after=", "page=2"] {
        let refused = server.get(&format!("/v1/leases?{query}")).await;
        refused.is_problem(400, "invalid_request", "not_forwarded");
    }
    assert_eq!(server.get("/v1/leases").await.body, json!({"leases": [], "next": null}));
}

#[tokio::test]
async fn names_that_cannot_be_are_refused_by_every_method() {
    let server = Server::start().await;
    let long = "x".repeat(1025);
    for name in ["%ff", "%00", "a%0Ab", "%zz", long.as_str()] {
        let path = format!("/v1/leases/{name}");
        for refused in [
            server.get(&path).await,
            server.delete(&format!("{path}?owner=a&token=1")).await,
            server.post(&path, json!({"owner": "a"})).await,
            server.post(&format!("{path}/renew"), json!({"owner": "a", "token": "1"})).await,
        ] {
            refused.is_problem(400, "unresolvable_resource", "not_forwarded");
        }
    }
}

#[tokio::test]
async fn whatever_the_router_refuses_is_a_problem_too() {
    let server = Server::start().await;
    for path in ["/", "/v1/leases/", "/v1/leases/a/b", "/v1/leases/a/renew/", "/v2/leases/a"] {
        server.get(path).await.is_problem(404, "no_route", "not_forwarded");
    }
    let refused = answer(server.request(Method::PUT, "/v1/leases/a")).await;
    refused.is_problem(405, "method_not_allowed", "not_forwarded");
    assert!(refused.headers.contains_key("allow"));
    let large = format!("{{\"owner\":\"{}\"}}", "x".repeat(16 * 1024));
    server.post("/v1/leases/a", large).await.is_problem(413, "body_too_large", "not_forwarded");
}

#[tokio::test]
async fn pages_of_leases_follow_each_other() {
    let server = Server::start().await;
    for resource in ["a", "b%2Fc", "d"] {
        server.acquire(resource, "w").await;
    }
    let first = server.get("/v1/leases?limit=2").await.body;
    assert_eq!(first["leases"].as_array().unwrap().len(), 2);
    assert_eq!(first["next"], "b/c");
    let last = server.get("/v1/leases?limit=2&after=b%2Fc").await.body;
    assert_eq!(last["leases"][0]["resource"], "d");
    assert_eq!(last["next"], Value::Null);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_told_with_what_may_have_happened() {
    let server = Server::start().await;
    let token = server.acquire("r", "a").await["token"].clone();
    server.break_store().await;
    let code = "coordinator_unavailable";
    let acquired = server.post("/v1/leases/r", json!({"owner": "a"})).await;
    acquired.is_problem(503, code, "unknown");
    assert!(acquired.headers.contains_key("retry-after"));
    let body = json!({"owner": "a", "token": token});
    server.post("/v1/leases/r/renew", body).await.is_problem(503, code, "unknown");
    assert_eq!(server.metrics.renewals_failed.get(), 1);
    let path = format!("/v1/leases/r?owner=a&token={}", token.as_str().unwrap());
    server.delete(&path).await.is_problem(503, code, "unknown");
    server.get("/v1/leases/r").await.is_problem(503, code, "not_forwarded");
    server.get("/v1/leases").await.is_problem(503, code, "not_forwarded");
}

#[tokio::test]
async fn a_client_that_disconnects_while_it_waits_leaves_the_queue() {
    let server = Server::start().await;
    let lease = server.acquire("r", "a").await;
    let body = r#"{"owner":"gone","wait_ms":3600000}"#;
    let head = format!(
        "POST /v1/leases/r HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all((head + body).as_bytes()).await.unwrap();
    server.until_waiters(1).await;
    drop(stream);
    server.until_waiters(0).await;

    let token = lease["token"].as_str().unwrap();
    server.delete(&format!("/v1/leases/r?owner=a&token={token}")).await;
    server.get("/v1/leases/r").await.is_problem(404, "lease_not_found", "not_forwarded");
}

#[tokio::test]
async fn those_who_wait_leave_room_for_holders() {
    let server = Server::start().await;
    server.acquire("r", "a").await;
    let service = hyper_util::service::TowerToHyperService::new(server.router.clone());
    let wait = || {
        let body = Body::from(r#"{"owner":"b","wait_ms":3600000}"#);
        let request = http::Request::post("/v1/leases/r").body(body).unwrap();
        hyper::service::Service::call(&service, request)
    };
    for _ in 0..WAITERS {
        server.tasks.spawn(wait());
    }
    server.until_waiters(WAITERS.try_into().unwrap()).await;
    let refused = wait().await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let impatient = server.post("/v1/leases/r", json!({"owner": "b"})).await;
    impatient.is_problem(409, "lease_held", "not_forwarded");
}

#[tokio::test]
async fn shutdown_ends_waits_and_then_everything() {
    let server = Server::start().await;
    server.acquire("r", "a").await;
    let wait = server.post("/v1/leases/r", json!({"owner": "b", "wait_ms": 3_600_000}));
    let shut_down = async {
        server.until_waiters(1).await;
        server.shutdown.cancel();
    };
    let (refused, ()) = tokio::join!(wait, shut_down);
    refused.is_problem(503, "overloaded", "not_forwarded");
    let Server { tasks, database, router, .. } = server;
    drop((database, router));
    tasks.close();
    tokio::time::timeout(DEADLINE, tasks.wait()).await.expect("nothing is left");
}
