//! A lease API in memory that can be slow, can lose leases and can go away.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use fencegate::clock::{Boottime, Clock};
use http::StatusCode;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

type Answer = (StatusCode, Json<Value>);

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) owner: String,
    pub(crate) token: u64,
    pub(crate) expires_at: Boottime,
    ttl_ms: u64,
}

#[derive(Default)]
pub(crate) struct Book {
    pub(crate) leases: HashMap<String, Held>,
    pub(crate) issued: u64,
    pub(crate) renewals: u32,
    pub(crate) renewal_delay: Duration,
    /// Called before a release takes effect.
    pub(crate) on_release: Option<Box<dyn FnMut() + Send>>,
}

type Shared = Arc<Mutex<Book>>;

pub(crate) struct LeaseServer {
    pub(crate) book: Shared,
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl LeaseServer {
    pub(crate) fn start() -> LeaseServer {
        let book = Shared::default();
        let routes = Router::new()
            .route("/v1/leases", get(list))
            .route("/v1/leases/{resource}", post(acquire).get(show).delete(release))
            .route("/v1/leases/{resource}/renew", post(renew))
            .with_state(book.clone());
        let (address, stop, thread) = super::serve(routes);
        LeaseServer { book, address, stop, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts every connection and closes the port.
    pub(crate) fn go_away(&mut self) {
        self.stop.cancel();
        self.thread.take().unwrap().join().unwrap();
    }

    pub(crate) fn lease(&self, resource: &str) -> Option<Held> {
        self.book.lock().unwrap().leases.get(resource).cloned()
    }

    /// Gives the lease to somebody else.
    pub(crate) fn hold(&self, resource: &str, ttl: Duration) {
        let mut book = self.book.lock().unwrap();
        book.grant(resource, "somebody", u64::try_from(ttl.as_millis()).unwrap());
    }
}

impl Drop for LeaseServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Book {
    fn live(&mut self, resource: &str) -> Option<&mut Held> {
        let now = Clock::new().now();
        self.leases.get_mut(resource).filter(|held| now < held.expires_at)
    }

    fn grant(&mut self, resource: &str, owner: &str, ttl_ms: u64) -> Held {
        self.issued += 1;
        let expires_at = Clock::new().now() + Duration::from_millis(ttl_ms);
        let held = Held { owner: owner.to_owned(), token: self.issued, expires_at, ttl_ms };
        self.leases.insert(resource.to_owned(), held.clone());
        held
    }
}

fn lease(resource: &str, held: &Held) -> Value {
    let moment = Clock::new().wall_at(held.expires_at);
    json!({
        "resource": resource, "owner": held.owner, "token": held.token.to_string(),
        "lease": format!("{:x}", held.token), "ttl_ms": held.ttl_ms,
        "acquired_at": moment, "expires_at": moment,
    })
}

fn problem(status: StatusCode, code: &str) -> Answer {
    (status, Json(json!({ "code": code, "detail": format!("the words for {code}") })))
}

async fn acquire(
    State(book): State<Shared>,
    Path(resource): Path<String>,
    Json(body): Json<Value>,
) -> Answer {
    let clock = Clock::new();
    let give_up = clock.now() + Duration::from_millis(body["wait_ms"].as_u64().unwrap());
    let owner = body["owner"].as_str().unwrap();
    loop {
        let holder = book.lock().unwrap().live(&resource).cloned();
        let Some(holder) = holder.filter(|holder| holder.owner != owner) else {
            let ttl_ms = body["ttl_ms"].as_u64().unwrap();
            let held = book.lock().unwrap().grant(&resource, owner, ttl_ms);
            return (StatusCode::CREATED, Json(lease(&resource, &held)));
        };
        if give_up <= clock.now() {
            let (status, Json(mut problem)) = problem(StatusCode::CONFLICT, "lease_held");
            problem["holder"] = lease(&resource, &holder);
            return (status, Json(problem));
        }
        clock.sleep_until(clock.now() + Duration::from_millis(10)).await;
    }
}

async fn renew(
    State(book): State<Shared>,
    Path(resource): Path<String>,
    Json(body): Json<Value>,
) -> Answer {
    let clock = Clock::new();
    let delay = book.lock().unwrap().renewal_delay;
    clock.sleep_until(clock.now() + delay).await;
    let mut book = book.lock().unwrap();
    book.renewals += 1;
    let is_theirs = |held: &&mut Held| {
        let token = held.token.to_string();
        body["owner"] == held.owner.as_str() && body["token"] == token.as_str()
    };
    let Some(held) = book.live(&resource).filter(is_theirs) else {
        return problem(StatusCode::CONFLICT, "lease_lost");
    };
    held.expires_at = clock.now() + Duration::from_millis(held.ttl_ms);
    (StatusCode::OK, Json(lease(&resource, held)))
}

async fn release(
    State(book): State<Shared>,
    Path(resource): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<StatusCode, Answer> {
    let mut book = book.lock().unwrap();
    if let Some(on_release) = &mut book.on_release {
        on_release();
    }
    let Some(held) = book.live(&resource) else {
        return Err(problem(StatusCode::NOT_FOUND, "lease_not_found"));
    };
    if query["owner"] != held.owner || query["token"] != held.token.to_string() {
        return Err(problem(StatusCode::FORBIDDEN, "owner_mismatch"));
    }
    book.leases.remove(&resource);
    Ok(StatusCode::NO_CONTENT)
}

async fn show(State(book): State<Shared>, Path(resource): Path<String>) -> Answer {
    match book.lock().unwrap().live(&resource) {
        Some(held) => (StatusCode::OK, Json(lease(&resource, held))),
        None => problem(StatusCode::NOT_FOUND, "lease_not_found"),
    }
}

async fn list(State(book): State<Shared>) -> Json<Value> {
    let book = book.lock().unwrap();
    let leases: Vec<Value> = book.leases.iter().map(|(name, held)| lease(name, held)).collect();
    Json(json!({ "leases": leases, "next": null }))
}
