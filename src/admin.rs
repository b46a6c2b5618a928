//! The admin listener: metrics, health, and a look at the fences.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use prometheus::{Registry, TextEncoder};
use serde::{Deserialize, Serialize};

use crate::fence::{Resource, Token};
use crate::fences::{DoubtView, Fences, LeftView, Refused};
use crate::gateway::Connections;
use crate::metrics::Census;
use crate::problem::{Code, Problem};
use crate::store::{FenceRow, StoreError};
use crate::token_gauges::TokenGauges;

/// Rows of a page unless the request says otherwise, and at the most.
const PAGE_ROWS: u32 = 100;
const MOST_ROWS: u32 = 1000;

/// What the admin listener shows.
#[derive(Clone)]
pub struct Admin {
    /// Admission.
    pub fences: Arc<Fences>,
    /// What `/metrics` prints.
    pub registry: Registry,
    /// Gauges that are set when they are asked for.
    pub census: Arc<Census>,
    /// The tokens of the resources that the configuration names.
    pub tokens: Arc<TokenGauges>,
    /// Open client connections of the proxy listener.
    pub connections: Connections,
    /// Whether new requests are welcome.
    pub ready: Arc<AtomicBool>,
}

/// The listener's paths.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .route("/v1/fences", get(list))
        .route("/v1/fences/{resource}", get(show).post(raise))
        .route("/v1/in-doubt", get(in_doubt))
        .with_state(admin)
}

async fn metrics(State(admin): State<Admin>) -> Result<impl IntoResponse, Problem> {
    let (cells, in_flight, grants) = admin.fences.census();
    let census = &admin.census;
    census.cells.set(cells.cast_signed() as i64);
    census.in_flight.set(in_flight.cast_signed());
    census.grants.set(grants.cast_signed());
    census.in_doubt.set(admin.fences.doubts().unsettled().cast_signed() as i64);
    census.connections.set(admin.connections.open().cast_signed() as i64);
    let mut families = admin.registry.gather();
    families.extend(admin.tokens.gather().await);
    let text = TextEncoder::new()
        .encode_to_string(&families)
        .map_err(|error| Problem::new(Code::Overloaded, error.to_string()))?;
    Ok(([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text))
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    if admin.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    after: Option<Resource>,
    limit: Option<u32>,
}

#[derive(Serialize)]
struct Fence {
    #[serde(flatten)]
    row: FenceRow,
    in_flight: u32,
}

#[derive(Serialize)]
struct FencePage {
    fences: Vec<Fence>,
    /// Give it as `after` to get the next page.
    next: Option<Resource>,
}

async fn list(
    State(admin): State<Admin>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<FencePage>, Problem> {
    let Query(page) = page.map_err(|error| invalid(&error.body_text()))?;
    let limit = page.limit.unwrap_or(PAGE_ROWS).clamp(1, MOST_ROWS);
    let rows = admin.fences.list(page.after, limit).await.map_err(unconfirmed)?;
    let is_full = rows.len() >= limit as usize;
    let next = rows.last().filter(|_| is_full).map(|row| row.resource.clone());
    let fences = rows.into_iter().map(|row| admin.fence(row)).collect();
    Ok(Json(FencePage { fences, next }))
}

async fn show(
    State(admin): State<Admin>,
    resource: Result<Path<String>, PathRejection>,
) -> Result<Json<Fence>, Problem> {
    let resource = named(resource)?;
    let row = admin.fences.show(resource.clone()).await.map_err(unconfirmed)?.ok_or_else(|| {
        let mut problem = Problem::new(Code::FenceNotFound, "no token was ever accepted for it");
        problem.resource = Some(resource.to_string());
        problem
    })?;
    Ok(Json(admin.fence(row)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RaiseTo {
    token: Token,
}

/// Raises a mark by an operator's word, to shut out every lower token.
async fn raise(
    State(admin): State<Admin>,
    resource: Result<Path<String>, PathRejection>,
    body: Result<Json<RaiseTo>, JsonRejection>,
) -> Result<Json<Fence>, Problem> {
    let resource = named(resource)?;
    let Json(RaiseTo { token }) = body.map_err(|error| invalid(&error.body_text()))?;
    let mark = admin.fences.raise_by_operator(&resource, token).await.map_err(|error| {
        let code = match error {
            Refused::Store(_) => Code::FenceStoreUnavailable,
            _ => Code::Overloaded,
        };
        Problem::new(code, error.to_string())
    })?;
    if mark.token > token {
        let mut problem =
            Problem::new(Code::MarkNotRaised, "the mark is higher already; it is never lowered");
        problem.resource = Some(resource.to_string());
        problem.presented_token = Some(token);
        problem.highest_token = Some(mark.token);
        return Err(problem);
    }
    show(State(admin), Ok(Path(resource.to_string()))).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    limit: Option<u32>,
}

#[derive(Serialize)]
struct InDoubt {
    /// Writes of this run, newest first.
    in_doubt: Vec<DoubtView>,
    /// Grants that an earlier run did not give back, and that are not settled: writes of these
    /// tokens may be in doubt, how many is not known.
    left_by_crash: Vec<LeftView>,
}

async fn in_doubt(
    State(admin): State<Admin>,
    limit: Result<Query<Limit>, QueryRejection>,
) -> Result<Json<InDoubt>, Problem> {
    let Query(Limit { limit }) = limit.map_err(|error| invalid(&error.body_text()))?;
    let limit = limit.unwrap_or(PAGE_ROWS).clamp(1, MOST_ROWS);
    Ok(Json(InDoubt {
        in_doubt: admin.fences.doubts().list(limit as usize),
        left_by_crash: admin.fences.left(limit).await.map_err(unconfirmed)?,
    }))
}

impl Admin {
    fn fence(&self, row: FenceRow) -> Fence {
        Fence { in_flight: self.fences.in_flight(&row.resource), row }
    }
}

fn named(resource: Result<Path<String>, PathRejection>) -> Result<Resource, Problem> {
    let Path(name) = resource.map_err(|error| unresolvable(&error.body_text()))?;
    Resource::new(&name).map_err(|error| unresolvable(&error.to_string()))
}

fn unconfirmed(error: StoreError) -> Problem {
    Problem::new(Code::FenceStoreUnavailable, error.to_string())
}

fn unresolvable(detail: &str) -> Problem {
    Problem::new(Code::UnresolvableResource, detail)
}

fn invalid(detail: &str) -> Problem {
    Problem::new(Code::InvalidRequest, detail)
}
