//! One request, from its head to the head of its answer.

mod admission;
mod records;
mod shedding;

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use http::header::{ALLOW, CONNECTION, EXPECT, HOST};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Uri, Version};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::body::{self, BodyLimits, RequestBody, ResponseBody};
use super::connection::HeadLimits;
use super::door::Door;
use super::forward::{self, Forward, Origin};
use super::head::{self, Signs};
use super::load::{self, ClientLimits, Clients, Turn};
use super::refusal::Refusal;
use super::route::{Route, RouteTable, is_read};
use super::sending::Sending;
use super::upload::Upload;
use super::upstream::Upstream;
use super::watch::Watch;
use super::{credential, forwarded, interim, pseudo_fields, target};
use crate::clock::{Boottime, Clock};
use crate::config::{Config, Forwarded};
use crate::fence::{Resource, Token};
use crate::fences::{Fences, Permit};
use crate::metrics::{LimitMetrics, RouteMetrics};
use crate::spans::{Decision, Spans};
use crate::trace::{Parent, TraceId, TraceIds};

/// Every method is passed on but CONNECT and TRACE; these are the ones that have a meaning everywhere.
const ALLOWED: &str = "GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE";

/// What all connections of one thread share.
pub(super) struct Worker {
    pub(super) fences: Arc<Fences>,
    pub(super) routes: RouteTable,
    pub(super) upstreams: Vec<Arc<Upstream>>,
    pub(super) head: HeadLimits,
    pub(super) body_timeout: Duration,
    pub(super) client_limits: ClientLimits,
    /// Of one connection.
    pub(super) requests: u32,
    pub(super) clients: Arc<Clients>,
    pub(super) limit_hits: LimitMetrics,
    pub(super) clock: Clock,
    pub(super) traces: TraceIds,
    /// Takes the spans of decisions, where there is a collector.
    pub(super) spans: Option<Spans>,
    pub(super) tasks: TaskTracker,
    pub(super) runtime: Handle,
    pub(super) forwarded: Forwarded,
    pub(super) door: Door,
    /// For telling clients that their connection is one too many.
    pub(super) last_words: Arc<Semaphore>,
    /// The second in which shed load was logged last.
    pub(super) shed_logged: AtomicU64,
    /// Another one serves from now on.
    pub(super) is_replaced: AtomicBool,
    /// What it was made of.
    pub(super) config: Arc<Config>,
}

/// A request whose route is known.
struct Matched<'a> {
    route: &'a Arc<Route>,
    resource: &'a str,
    signs: &'a Signs,
    watch: &'a Arc<Watch>,
    started: Boottime,
}

/// What a refusal is told with.
struct Context<'a> {
    route: Option<&'a Arc<Route>>,
    resource: Option<&'a str>,
    token: Option<Token>,
    method: &'a Method,
    trace_id: TraceId,
    /// Where the request came from and when, if somebody records that and no span was made of it yet.
    traced: Option<(Parent, Boottime)>,
}

impl Worker {
    /// Answers one request.
    pub(super) async fn serve(
        self: Arc<Worker>,
        watch: Arc<Watch>,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        watch.serving();
        // Lent from here on: to move a head costs more than what is done to it.
        let (mut parts, body) = request.into_parts();
        let mut answer = self.answer(&watch, &mut parts, body).await;
        watch.interim.close();
        if watch.is_spent() && parts.version < Version::HTTP_2 {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(answer.map(|body| body.watched_by(watch)))
    }

    async fn answer(
        &self,
        watch: &Arc<Watch>,
        parts: &mut Parts,
        body: Incoming,
    ) -> Response<ResponseBody> {
        let started = self.clock.now();
        let method = parts.method.clone();
        let is_http2 = parts.version == Version::HTTP_2;
        let normal = if is_http2 { pseudo_fields::normalise(parts) } else { Ok(()) };
        let uri = parts.uri.clone();
        let judged = normal.and_then(|()| judge_head(&uri, parts));
        let (trace_id, is_held_back) = match &judged {
            Ok((_, signs)) => (signs.trace_id, signs.expects_to_be_asked),
            Err(_) => (head::trace_id(&parts.headers), parts.headers.contains_key(EXPECT)),
        };
        let trace_id = trace_id.unwrap_or_else(|| self.traces.next());
        let body = Upload::new(body, watch, is_held_back);
        let parent = self.spans.as_ref().and_then(|_| Spans::parent(&parts.headers));
        let mut context = Context {
            route: None,
            resource: None,
            token: None,
            method: &method,
            trace_id,
            traced: parent.map(|parent| (parent, started)),
        };
        let (path, signs) = match judged {
            Ok(judged) => judged,
            Err(refusal) => return self.refuse_unmatched(watch, refusal, &mut context, started),
        };
        let Some((route, resource)) = self.routes.find(&path) else {
            return self.refuse_unmatched(watch, Refusal::NoRoute, &mut context, started);
        };
        context.route = Some(route);
        context.resource = Some(&resource);
        let is_write = !is_read(&method) || signs.may_write();
        if is_write { &route.metrics.writes } else { &route.metrics.reads }.inc();
        let matched = Matched { route, resource: &resource, signs: &signs, watch, started };
        match self.let_through(matched, parts, body, &mut context).await {
            Ok(response) => response,
            Err(refusal) => self.refuse(&refusal, &mut context, started),
        }
    }

    /// Claim, body, admission, upstream.
    async fn let_through(
        &self,
        matched: Matched<'_>,
        parts: &mut Parts,
        body: Upload,
        context: &mut Context<'_>,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let Matched { route, resource, signs, watch, started } = matched;
        let client = &watch.tenancy.client;
        let turn = Turn::take(client, &self.client_limits, &route.load, route.lets_in, started)?;
        let claim = self.claim(route, resource, parts, signs);
        let claim = self.unless_observed(route, claim, context)?.flatten();
        context.token = claim.as_ref().map(|claim| claim.token);
        signs.strip(&mut parts.headers);
        if signs.is_forwarded {
            forwarded::drop_untrusted(&watch.client, &mut parts.headers);
        }
        let body = body::read(body, self.body_limits(route, started), watch, self.clock).await?;
        watch.without_limit();
        // Whole before a permit is asked for: what can still fail here must not put a write in doubt.
        let upstream = &self.upstreams[route.upstream];
        let mut request = outgoing(parts, signs, body, upstream);
        forwarded::tell(self.forwarded, &watch.client, request.headers_mut());
        upstream.address(&mut request)?;
        if parts.version == Version::HTTP_11 {
            interim::pass_on(&mut request, watch);
        }
        let mut now = self.clock.now();
        let permit = match claim {
            Some(claim) => {
                let admitted = self.admit(route, &claim, &mut now, context.trace_id).await;
                self.unless_observed(route, admitted, context)?
            }
            None => None,
        };
        let span = permit.as_ref().and_then(|_| self.admitted(context, request.headers_mut()));
        watch.until(now + route.timeout);
        let upload = request.body_mut().on_sent();
        let (upstream, on_watch) = (Arc::clone(upstream), Arc::clone(watch));
        let right = permit.as_ref().and_then(Permit::right);
        let sending =
            Sending::new(request, right, upstream, on_watch, self.clock, now, turn.clone());
        let answer = match permit {
            Some(permit) => {
                let origin = Origin {
                    route: Arc::clone(route),
                    method: context.method.clone(),
                    trace_id: context.trace_id,
                    span,
                };
                Forward::new(sending, permit, origin, upload).await
            }
            None => forward::pass(sending).await,
        };
        let answered = self.clock.now();
        route.metrics.upstream.observe(answered.since(now), context.trace_id);
        let response = answer?;
        route.metrics.request.observe(answered.since(started), context.trace_id);
        Ok(response.map(|body| body.counted_as(turn)))
    }

    fn body_limits(&self, route: &Route, started: Boottime) -> BodyLimits {
        BodyLimits {
            buffer_bytes: route.buffer_bytes,
            body_bytes: route.body_bytes,
            until: started + self.body_timeout,
            pause: self.body_timeout,
        }
    }

    /// Refuses what has no route, and counts it as a request of the route `none`.
    fn refuse_unmatched(
        &self,
        watch: &Watch,
        refusal: Refusal,
        context: &mut Context<'_>,
        started: Boottime,
    ) -> Response<ResponseBody> {
        let RouteMetrics { reads, writes, .. } = &self.routes.unmatched;
        if is_read(context.method) { reads } else { writes }.inc();
        let charged = load::charge(&watch.tenancy.client, &self.client_limits, started);
        let refusal = charged.map_or_else(Refusal::Limited, |()| refusal);
        self.refuse(&refusal, context, started)
    }

    fn refuse(
        &self,
        refusal: &Refusal,
        context: &mut Context<'_>,
        started: Boottime,
    ) -> Response<ResponseBody> {
        self.count(refusal.event(), refusal, context);
        self.trace(Decision::Refused, refusal, context);
        let metrics = context.route.map_or(&self.routes.unmatched, |route| &route.metrics);
        metrics.request.observe(self.clock.now().since(started), context.trace_id);
        let resource = context.resource.and_then(|name| Resource::new(name).ok());
        let problem = refusal.problem(resource.as_ref(), context.token, context.trace_id);
        let mut answer = problem.to_response().map(ResponseBody::own);
        if matches!(refusal, Refusal::MethodNotAllowed) {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(ALLOWED));
        }
        answer
    }
}

fn judge_head<'u>(uri: &'u Uri, parts: &Parts) -> Result<(Cow<'u, str>, Signs), Refusal> {
    let signs = head::read(&parts.method, uri, parts.version, &parts.headers)?;
    let path = target::normal_path(uri.path())
        .map_err(|error| Refusal::Unresolvable(error.to_string()))?;
    Ok((path, signs))
}

/// The request as it goes upstream.
fn outgoing(
    parts: &mut Parts,
    signs: &Signs,
    body: RequestBody,
    upstream: &Upstream,
) -> Request<RequestBody> {
    let mut request = Request::new(body);
    *request.method_mut() = std::mem::take(&mut parts.method);
    *request.uri_mut() = origin_form(std::mem::take(&mut parts.uri));
    *request.headers_mut() = std::mem::take(&mut parts.headers);
    if !signs.has_host
        && let Ok(host) = HeaderValue::from_str(&upstream.authority)
    {
        request.headers_mut().insert(HOST, host);
    }
    if let Some(credential) = &upstream.credential {
        credential::put_on(credential, request.headers_mut());
    }
    request
}

/// The target as an upstream wants it: the same path and query, without scheme and host.
fn origin_form(uri: Uri) -> Uri {
    if uri.authority().is_none() {
        return uri;
    }
    let mut parts = uri.into_parts();
    parts.scheme = None;
    parts.authority = None;
    Uri::from_parts(parts).unwrap_or_default()
}
