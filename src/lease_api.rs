//! The lease API: leases over HTTP, for workers in any language.
//!
//! Owned here: the routes of the lease listener, and how the coordinator's answers look on the
//! wire. Every refusal is a problem document. Its `outcome` is about the lease: `unknown` where
//! the coordinator did not confirm an acquisition, a renewal or a release, which may then have
//! happened; `not_forwarded` everywhere else.

mod waiting;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{StatusCode, Uri, header};
use tokio_util::sync::CancellationToken;

use self::waiting::Waiting;
use self::wire::{AcquireBody, HolderBody, LeaseBody, LeasesBody, ReleaseQuery, RenewBody};
use crate::clock::{Clock, WallTime};
use crate::coordinator::{Acquired, Coordinator, CoordinatorError, Lease, LeaseMetrics, Released};
use crate::fence::{Owner, Resource, Token};
use crate::http_server::{ApiBounds, PageQuery, ResourceName, parse_json, parse_query, read_body};
use crate::metrics::LimitMetrics;
use crate::problem::{Code, Problem, ProblemOutcome};

/// The description of this API, as it is served at `/openapi.json`.
pub const OPENAPI: &str = include_str!("lease_api/openapi.json");

#[derive(Clone)]
struct Api {
    coordinator: Arc<dyn Coordinator>,
    clock: Clock,
    metrics: LeaseMetrics,
    waiting: Waiting,
    shutdown: CancellationToken,
}

/// The routes of the lease listener, to be served by [`crate::http_server::serve`]. After
/// `shutdown`, acquisitions that wait are refused; everything else is answered as before.
pub fn router(
    coordinator: Arc<dyn Coordinator>,
    clock: Clock,
    metrics: LeaseMetrics,
    (bounds, hits): (ApiBounds, LimitMetrics),
    shutdown: CancellationToken,
) -> Router {
    let waiting = Waiting::new(bounds, hits);
    Router::new()
        .route("/v1/leases", get(list))
        .route("/v1/leases/{resource}", post(acquire).get(show).delete(release))
        .route("/v1/leases/{resource}/renew", post(renew))
        .route("/openapi.json", get(openapi))
        .with_state(Api { coordinator, clock, metrics, waiting, shutdown })
}

async fn acquire(
    State(api): State<Api>,
    ResourceName(resource): ResourceName,
    body: Body,
) -> Result<Response, Problem> {
    let about = |problem| about(&resource, problem);
    let body: AcquireBody =
        read_body(body).await.and_then(|body| parse_json(&body)).map_err(about)?;
    let (ttl, wait) = (body.ttl().map_err(about)?, body.wait().map_err(about)?);
    let acquisition = api.coordinator.acquire(resource.clone(), body.owner, ttl, wait);
    let acquired = if wait.is_zero() {
        acquisition.await
    } else {
        let _place = api.waiting.enter(&resource).map_err(about)?;
        tokio::select! {
            biased;
            acquired = acquisition => acquired,
            () = api.shutdown.cancelled() => return Err(about(shutting_down())),
        }
    };
    match acquired.map_err(|error| about(unconfirmed(&error)))? {
        Acquired::Granted(lease) => {
            Ok((StatusCode::CREATED, Json(LeaseBody::from(lease))).into_response())
        }
        Acquired::Held(lease) => Err(about(lease_held(&lease, api.clock.wall()))),
    }
}

async fn renew(
    State(api): State<Api>,
    ResourceName(resource): ResourceName,
    body: Body,
) -> Result<Json<LeaseBody>, Problem> {
    let began = api.clock.now();
    let about = |problem| about(&resource, problem);
    let body: RenewBody =
        read_body(body).await.and_then(|body| parse_json(&body)).map_err(about)?;
    let ttl = body.ttl().map_err(about)?;
    let renewal =
        api.coordinator.renew(resource.clone(), body.owner.clone(), body.token, ttl).await;
    api.metrics.renewal_answered(api.clock.now().since(began));
    let renewed = renewal.map_err(|error| {
        api.metrics.renewal_unconfirmed(&resource, &body.owner, body.token, &error);
        about(unconfirmed(&error))
    })?;
    match renewed {
        Some(lease) => Ok(Json(lease.into())),
        None => Err(about(lease_lost(&body.owner, body.token))),
    }
}

async fn release(
    State(api): State<Api>,
    ResourceName(resource): ResourceName,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let about = |problem| about(&resource, problem);
    let ReleaseQuery { owner, token } = parse_query(&uri).map_err(about)?;
    let released = api.coordinator.release(resource.clone(), owner, token).await;
    match released.map_err(|error| about(unconfirmed(&error)))? {
        Released::Released => Ok(StatusCode::NO_CONTENT),
        Released::OwnerMismatch => Err(about(Problem::new(
            Code::OwnerMismatch,
            "the lease has another owner or another token; it was left as it is",
        ))),
        Released::NotFound => Err(about(lease_not_found())),
    }
}

async fn show(
    State(api): State<Api>,
    ResourceName(resource): ResourceName,
) -> Result<Json<LeaseBody>, Problem> {
    let about = |problem| about(&resource, problem);
    match api.coordinator.show(resource.clone()).await {
        Ok(Some(lease)) => Ok(Json(lease.into())),
        Ok(None) => Err(about(lease_not_found())),
        Err(error) => Err(about(unavailable(&error))),
    }
}

async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<LeasesBody>, Problem> {
    let query: PageQuery = parse_query(&uri)?;
    let limit = query.limit()?;
    let leases =
        api.coordinator.list(query.after, limit).await.map_err(|error| unavailable(&error))?;
    Ok(Json(LeasesBody::new(leases, limit)))
}

async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

fn about(resource: &Resource, mut problem: Problem) -> Problem {
    problem.resource = Some(resource.to_string());
    problem
}

fn lease_held(lease: &Lease, now: WallTime) -> Problem {
    let Lease { owner, token, expires_at, .. } = lease;
    let detail = format!("held by {owner} with token {token} until {expires_at}");
    let mut problem = Problem::new(Code::LeaseHeld, detail);
    problem.holder = serde_json::to_value(HolderBody::from(lease)).ok();
    // Rounded up: a retry at the very moment would be early by the rest of the second.
    let left = expires_at.since(now) + Duration::from_millis(999);
    problem.retry_after_seconds = Some(left.as_secs().max(1));
    problem
}

fn lease_lost(owner: &Owner, token: Token) -> Problem {
    let detail = format!(
        "{owner} has no live lease with token {token}: it has expired, or was never this owner's; \
         stop the work and acquire a new one"
    );
    let mut problem = Problem::new(Code::LeaseLost, detail);
    problem.presented_token = Some(token);
    problem
}

fn lease_not_found() -> Problem {
    Problem::new(Code::LeaseNotFound, "nobody holds this lease; it was never acquired, or is over")
}

fn shutting_down() -> Problem {
    Problem::new(
        Code::Overloaded,
        "the gateway is shutting down, and nobody can wait here any more",
    )
}

/// A question that was not answered: nothing can have happened.
fn unavailable(error: &CoordinatorError) -> Problem {
    Problem::new(Code::CoordinatorUnavailable, error.to_string())
}

/// A change that was not confirmed: it may be on disk.
fn unconfirmed(error: &CoordinatorError) -> Problem {
    let mut problem = unavailable(error);
    problem.outcome = ProblemOutcome::Unknown;
    problem
}

#[cfg(test)]
mod tests;
