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
use crate::access::{Access, Caller, Listener, Scope, Verb};
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

/// The description is the same for everybody, and says nothing of anybody.
const OPEN: &[&str] = &["/openapi.json"];

/// The routes of the lease listener, to be served by [`crate::http_server::serve`], for those
/// whom `access` lets in. After `shutdown`, acquisitions that wait are refused; everything else is
/// answered as before.
pub fn router(
    coordinator: Arc<dyn Coordinator>,
    access: &Arc<Access>,
    clock: Clock,
    metrics: LeaseMetrics,
    (bounds, hits): (ApiBounds, LimitMetrics),
    shutdown: CancellationToken,
) -> Router {
    let waiting = Waiting::new(bounds, hits);
    let router = Router::new()
        .route("/v1/leases", get(list))
        .route("/v1/leases/{resource}", post(acquire).get(show).delete(release))
        .route("/v1/leases/{resource}/renew", post(renew))
        .route("/openapi.json", get(openapi))
        .with_state(Api { coordinator, clock, metrics, waiting, shutdown });
    access.guard(Listener::Leases, OPEN, router)
}

async fn acquire(
    State(api): State<Api>,
    caller: Caller,
    ResourceName(resource): ResourceName,
    body: Body,
) -> Result<Response, Problem> {
    let about = |problem| about(&resource, problem);
    let body: AcquireBody =
        read_body(body).await.and_then(|body| parse_json(&body)).map_err(about)?;
    let (ttl, wait) = (body.ttl().map_err(about)?, body.wait().map_err(about)?);
    let action = caller.begin(Verb::LeaseAcquire, Scope::Lease(&resource, &body.owner))?;
    match api.acquired(&resource, body.owner, ttl, wait).await.map_err(about) {
        Ok(lease) => action.with_token(lease.token).ended(Ok(lease)),
        refused => action.ended(refused),
    }
    .map(|lease| (StatusCode::CREATED, Json(LeaseBody::from(lease))).into_response())
}

impl Api {
    async fn acquired(
        &self,
        resource: &Resource,
        owner: Owner,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Lease, Problem> {
        let acquisition = self.coordinator.acquire(resource.clone(), owner, ttl, wait);
        let acquired = if wait.is_zero() {
            acquisition.await
        } else {
            let _place = self.waiting.enter(resource)?;
            tokio::select! {
                biased;
                acquired = acquisition => acquired,
                () = self.shutdown.cancelled() => return Err(shutting_down()),
            }
        };
        match acquired.map_err(|error| unconfirmed(&error))? {
            Acquired::Granted(lease) => Ok(lease),
            Acquired::Held(lease) => Err(lease_held(&lease, self.clock.wall())),
        }
    }
}

async fn renew(
    State(api): State<Api>,
    caller: Caller,
    ResourceName(resource): ResourceName,
    body: Body,
) -> Result<Json<LeaseBody>, Problem> {
    let began = api.clock.now();
    let about = |problem| about(&resource, problem);
    let body: RenewBody =
        read_body(body).await.and_then(|body| parse_json(&body)).map_err(about)?;
    let ttl = body.ttl().map_err(about)?;
    let scope = Scope::Lease(&resource, &body.owner);
    let action = caller.begin(Verb::LeaseRenew, scope)?.with_token(body.token);
    let renewal =
        api.coordinator.renew(resource.clone(), body.owner.clone(), body.token, ttl).await;
    api.metrics.renewal_answered(api.clock.now().since(began));
    action.ended(match renewal {
        Ok(Some(lease)) => Ok(Json(lease.into())),
        Ok(None) => Err(about(lease_lost(&body.owner, body.token))),
        Err(error) => {
            api.metrics.renewal_unconfirmed(&resource, &body.owner, body.token, &error);
            Err(about(unconfirmed(&error)))
        }
    })
}

async fn release(
    State(api): State<Api>,
    caller: Caller,
    ResourceName(resource): ResourceName,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let about = |problem| about(&resource, problem);
    let ReleaseQuery { owner, token } = parse_query(&uri).map_err(about)?;
    let scope = Scope::Lease(&resource, &owner);
    let action = caller.begin(Verb::LeaseRelease, scope)?.with_token(token);
    let released = api.coordinator.release(resource.clone(), owner, token).await;
    action.ended(match released {
        Ok(Released::Released) => Ok(StatusCode::NO_CONTENT),
        Ok(Released::OwnerMismatch) => Err(about(Problem::new(
            Code::OwnerMismatch,
            "the lease has another owner or another token; it was left as it is",
        ))),
        Ok(Released::NotFound) => Err(about(lease_not_found())),
        Err(error) => Err(about(unconfirmed(&error))),
    })
}

async fn show(
    State(api): State<Api>,
    caller: Caller,
    ResourceName(resource): ResourceName,
) -> Result<Json<LeaseBody>, Problem> {
    let about = |problem| about(&resource, problem);
    caller.demand(Verb::LeaseRead, Scope::Resource(&resource))?;
    match api.coordinator.show(resource.clone()).await {
        Ok(Some(lease)) => Ok(Json(lease.into())),
        Ok(None) => Err(about(lease_not_found())),
        Err(error) => Err(about(unavailable(&error))),
    }
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<LeasesBody>, Problem> {
    caller.demand(Verb::LeaseRead, Scope::AllResources)?;
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
