//! The admin listener: metrics, health, and a look at the fences.

mod history;
mod readiness;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use http::header::{CONTENT_TYPE, VARY};
use http::{HeaderMap, StatusCode, Uri};
use prometheus::{Registry, TextEncoder};
use serde::{Deserialize, Serialize};

pub use self::readiness::Readiness;
use crate::access::{Access, Caller, Listener, Scope, Verb};
use crate::coordinator::Guard;
use crate::fence::{Resource, Token};
use crate::fences::{DoubtView, Fences, LeftView, OperatorRaise, Refused};
use crate::gateway::Connections;
use crate::http_server::{LimitQuery, PageQuery, ResourceName, parse_json, parse_query, read_body};
use crate::metrics::{self, Census, Exemplars, Format, Process, openmetrics};
use crate::problem::{Code, Problem, ProblemOutcome};
use crate::store::{FenceRow, StoreError};
use crate::token_gauges::TokenGauges;

/// What the admin listener shows.
#[derive(Clone)]
pub struct Admin {
    /// Admission.
    pub fences: Arc<Fences>,
    /// What `/metrics` prints.
    pub registry: Registry,
    /// What it shows beside that to those who ask for OpenMetrics.
    pub exemplars: Exemplars,
    /// Gauges that are set when they are asked for.
    pub census: Arc<Census>,
    /// The process, as the kernel sees it.
    pub process: Arc<Process>,
    /// The tokens of the resources that the configuration names.
    pub tokens: Arc<TokenGauges>,
    /// Open client connections of the proxy listener.
    pub connections: Connections,
    /// Watches over the coordinator's history; `None` if that is in the store itself.
    pub guard: Option<Arc<Guard>>,
    /// Whether new requests are welcome.
    pub ready: Arc<Readiness>,
    /// Whether `/metrics` needs no credential.
    pub open_metrics: bool,
}

/// For whoever restarts or chooses gateways; they say little.
const PROBES: &[&str] = &["/livez", "/readyz"];
const PROBES_AND_METRICS: &[&str] = &["/livez", "/readyz", "/metrics"];

/// The listener's paths, for those whom `access` lets in.
pub fn router(admin: Admin, access: &Arc<Access>) -> Router {
    let open = if admin.open_metrics { PROBES_AND_METRICS } else { PROBES };
    let router = Router::new()
        .route("/metrics", get(scrape))
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .route("/v1/fences", get(list))
        .route("/v1/fences/{resource}", get(show).post(raise))
        .route("/v1/in-doubt", get(in_doubt))
        .route("/v1/coordinator", get(history::show))
        .route("/v1/coordinator/adopt", post(history::adopt))
        .with_state(admin);
    access.guard(Listener::Admin, open, router)
}

async fn scrape(
    State(admin): State<Admin>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    if !admin.open_metrics {
        caller.demand(Verb::AdminMetrics, Scope::Gateway)?;
    }
    let census = &admin.census;
    census.unsettled.set(admin.fences.doubts().unsettled().cast_signed() as i64);
    census.lease_age.set(admin.fences.lease_age().as_secs_f64());
    census.lease_remaining(admin.fences.lease_remaining());
    census.connections.set(admin.connections.open().cast_signed() as i64);
    census.ready.set(i64::from(admin.unready().is_none()));
    census.look_at_log();
    admin.process.look();
    let mut families = admin.registry.gather();
    families.extend(admin.tokens.gather().await);
    let (content_type, text) = match metrics::format(&headers) {
        Format::OpenMetrics => {
            (openmetrics::CONTENT_TYPE, openmetrics::encode(&families, &admin.exemplars))
        }
        Format::Text => {
            let text = TextEncoder::new().encode_to_string(&families);
            let text = text.map_err(|error| Problem::new(Code::Overloaded, error.to_string()))?;
            (prometheus::TEXT_FORMAT, text)
        }
    };
    Ok(([(CONTENT_TYPE, content_type), (VARY, "Accept")], text))
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    match admin.unready() {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        None => (StatusCode::OK, "ready\n"),
    }
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
    caller: Caller,
    uri: Uri,
) -> Result<Json<FencePage>, Problem> {
    caller.demand(Verb::AdminRead, Scope::AllResources)?;
    let page: PageQuery = parse_query(&uri)?;
    let limit = page.limit()?;
    let rows = admin.fences.list(page.after, limit).await.map_err(unread)?;
    let is_full = rows.len() >= limit as usize;
    let next = rows.last().filter(|_| is_full).map(|row| row.resource.clone());
    let fences = rows.into_iter().map(|row| admin.fence(row)).collect();
    Ok(Json(FencePage { fences, next }))
}

async fn show(
    State(admin): State<Admin>,
    caller: Caller,
    ResourceName(resource): ResourceName,
) -> Result<Json<Fence>, Problem> {
    caller.demand(Verb::AdminRead, Scope::Resource(&resource))?;
    admin.shown(&resource).await.map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RaiseTo {
    token: Token,
}

/// Raises a mark by an operator's word, to shut out every lower token.
async fn raise(
    State(admin): State<Admin>,
    caller: Caller,
    ResourceName(resource): ResourceName,
    body: Body,
) -> Result<Json<Fence>, Problem> {
    let about = |problem| about(&resource, problem);
    let RaiseTo { token } =
        read_body(body).await.and_then(|body| parse_json(&body)).map_err(about)?;
    let action = caller.begin(Verb::AdminRaise, Scope::Resource(&resource))?.with_token(token);
    let raised = admin.fences.raise_by_operator(resource.clone(), token).await;
    action.ended(match raised {
        Ok(OperatorRaise::Raised) => Ok(()),
        Ok(OperatorRaise::NotRaised(mark)) => Err(about(not_raised(token, mark))),
        Err(error) => Err(about(unconfirmed(&error))),
    })?;
    admin.shown(&resource).await.map(Json)
}

fn not_raised(token: Token, mark: Token) -> Problem {
    let detail = format!("the mark is {mark} already, and is never lowered");
    let mut problem = Problem::new(Code::MarkNotRaised, detail);
    problem.presented_token = Some(token);
    problem.highest_token = Some(mark);
    problem
}

/// A raise that the store did not confirm may be on its way all the same.
fn unconfirmed(error: &Refused) -> Problem {
    let Refused::Store(_) = error else {
        return Problem::new(Code::Overloaded, error.to_string());
    };
    let mut problem = Problem::new(Code::FenceStoreUnavailable, error.to_string());
    problem.outcome = ProblemOutcome::Unknown;
    problem
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
    caller: Caller,
    uri: Uri,
) -> Result<Json<InDoubt>, Problem> {
    caller.demand(Verb::AdminRead, Scope::AllResources)?;
    let query: LimitQuery = parse_query(&uri)?;
    let limit = query.limit()?;
    Ok(Json(InDoubt {
        in_doubt: admin.fences.doubts().list(limit as usize),
        left_by_crash: admin.fences.left(limit).await.map_err(unread)?,
    }))
}

impl Admin {
    async fn shown(&self, resource: &Resource) -> Result<Fence, Problem> {
        let about = |problem| about(resource, problem);
        let row = self.fences.show(resource.clone()).await.map_err(|error| about(unread(error)))?;
        let row = row.ok_or_else(|| {
            about(Problem::new(Code::FenceNotFound, "no token was ever accepted for it"))
        })?;
        Ok(self.fence(row))
    }

    /// Why new requests are not welcome, if they are not.
    fn unready(&self) -> Option<&'static str> {
        self.ready.unready(self.fences.is_live())
    }

    fn fence(&self, row: FenceRow) -> Fence {
        Fence { in_flight: self.fences.in_flight(&row.resource), row }
    }
}

fn about(resource: &Resource, mut problem: Problem) -> Problem {
    problem.resource = Some(resource.to_string());
    problem
}

fn unread(error: StoreError) -> Problem {
    Problem::new(Code::FenceStoreUnavailable, error.to_string())
}
