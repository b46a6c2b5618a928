//! Who may do what on the lease and admin listeners.
//!
//! [`Access::guard`] puts a check in front of all that a listener serves: whoever is not known gets
//! no further, not even to a path that does not exist. A handler then gets a [`Caller`], of whom it
//! *demands* the right to look, or *begins* a change, which ends in a line of the audit log.
//!
//! Invariants: without configured credentials everybody may everything, and the configuration
//! lets the listeners be reached from this machine alone; what a credential is not allowed by name,
//! it may not. Neither log nor answer ever has a credential. Deliberately absent: users, sessions
//! and slow hashes, since tokens are long and random; and the proxy's clients, who prove
//! themselves to the API.

mod audit;
mod browser;
mod credentials;
mod metrics;
mod throttle;
mod token;
mod verb;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Request};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use prometheus::Registry;

pub use self::audit::Action;
pub use self::credentials::{Credential, Credentials};
use self::metrics::{Metrics, Reason};
use self::throttle::Throttle;
pub use self::token::{TOKEN_PREFIX, TokenHash, new_token};
pub use self::verb::{Scope, Verb};
use crate::clock::Clock;
use crate::http_server::{self, PeerIdentity};
use crate::live_file::LiveFile;
use crate::problem::{Code, Problem};
use crate::trace::{TraceId, TraceIds};

/// The credentials file in use.
pub type CredentialsFile = LiveFile<Arc<Credentials>>;

/// What is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The lease API.
    Leases,
    /// The admin API.
    Admin,
}

/// Says who may do what.
pub struct Access {
    /// `None`: everybody who reaches the listeners may everything.
    credentials: Option<Arc<CredentialsFile>>,
    metrics: Metrics,
    traces: TraceIds,
    unknown: Throttle,
}

/// Whoever sent a request.
#[derive(Clone)]
pub struct Caller {
    access: Arc<Access>,
    listener: Listener,
    standing: Standing,
    trace_id: TraceId,
}

#[derive(Clone)]
enum Standing {
    /// No credentials are configured.
    Anyone,
    Known(Arc<Credential>),
    /// On a path that is open to all. May nothing.
    Unknown,
}

impl Access {
    /// By these credentials; `None`: everybody may everything.
    ///
    /// # Errors
    /// Its metrics are registered already.
    pub fn new(
        credentials: Option<Arc<CredentialsFile>>,
        clock: Clock,
        registry: &Registry,
    ) -> prometheus::Result<Arc<Access>> {
        Ok(Arc::new(Access {
            credentials,
            metrics: Metrics::register(registry)?,
            traces: TraceIds::new(),
            unknown: Throttle::new(clock),
        }))
    }

    /// Lets nobody who is not known get to `router`, but on the paths in `open`.
    pub fn guard(
        self: &Arc<Access>,
        listener: Listener,
        open: &'static [&'static str],
        router: Router,
    ) -> Router {
        let access = Arc::clone(self);
        let check = move |mut request: Request, next: Next| {
            let access = Arc::clone(&access);
            async move {
                match access.caller(listener, open, &request) {
                    Ok(caller) => {
                        request.extensions_mut().insert(caller);
                        next.run(request).await
                    }
                    Err(problem) => problem.into_response(),
                }
            }
        };
        // The answers to unknown paths and methods are completed first, so that they are guarded too.
        http_server::complete(router).layer(from_fn::<_, (Request,)>(check))
    }

    fn caller(
        self: &Arc<Access>,
        listener: Listener,
        open: &[&str],
        request: &Request,
    ) -> Result<Caller, Box<Problem>> {
        let headers = request.headers();
        let trace_id = headers
            .get("traceparent")
            .and_then(|field| TraceId::of_traceparent(field.as_bytes()))
            .unwrap_or_else(|| self.traces.next());
        let known = self.credentials.as_ref().map(|file| file.get());
        let standing = if open.contains(&request.uri().path()) {
            Ok(Standing::Unknown)
        } else {
            browser::check(request, known.is_none())
                .map_err(|why| self.refused(listener, Reason::Forbidden, why))
                .and_then(|()| match known {
                    None => Ok(Standing::Anyone),
                    Some(known) => self.identify(listener, &known, request),
                })
        };
        let caller = |standing| Caller { access: Arc::clone(self), listener, standing, trace_id };
        standing.map(caller).map_err(|mut problem| {
            problem.trace_id = Some(trace_id.to_string());
            problem
        })
    }

    fn identify(
        &self,
        listener: Listener,
        known: &Credentials,
        request: &Request,
    ) -> Result<Standing, Box<Problem>> {
        let unknown = |why| self.refused(listener, Reason::Unauthenticated, why);
        let shown = request.extensions().get::<PeerIdentity>();
        let (found, why) = match (bearer(request.headers()).map_err(unknown)?, shown) {
            (Some(token), _) => {
                (known.of_token(token), "the bearer token is not known here (any more)")
            }
            (None, Some(certificate)) => (
                known.of_certificate(certificate.names()),
                "no name in the certificate is known here, or names of several are",
            ),
            (None, None) => (None, "send a credential: Authorization: Bearer TOKEN"),
        };
        let found = found.map(|found| Standing::Known(Arc::clone(found)));
        found.ok_or_else(|| unknown(why.to_owned()))
    }

    /// Counts a refusal of somebody without a name, and logs it now and then: whoever could write a
    /// line for each could drown the lines that matter.
    fn refused(&self, listener: Listener, reason: Reason, why: String) -> Box<Problem> {
        self.metrics.refused(listener, reason);
        if let Some(more) = self.unknown.pass() {
            tracing::warn!(
                target: audit::TARGET,
                listener = listener.as_str(),
                reason = reason.as_str(),
                detail = why,
                unlogged_before = more,
                "access refused"
            );
        }
        Box::new(Problem::new(reason.code(), why))
    }
}

/// The token of `Authorization: Bearer`, whose scheme is in any case (RFC 9110 §11.1).
fn bearer(headers: &HeaderMap) -> Result<Option<&[u8]>, String> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let Some(field) = fields.next() else { return Ok(None) };
    if fields.next().is_some() {
        return Err("the Authorization field is repeated; send it once".to_owned());
    }
    let Some((scheme, token)) = field.as_bytes().split_at_checked("Bearer ".len()) else {
        return Err("Authorization is not Bearer and a token".to_owned());
    };
    if !scheme.eq_ignore_ascii_case(b"Bearer ") {
        return Err("Authorization is not Bearer and a token".to_owned());
    }
    Ok(Some(token.trim_ascii()))
}

impl Caller {
    /// Whether the caller may look at something.
    ///
    /// # Errors
    /// A refusal, which was counted and logged.
    pub fn demand(&self, verb: Verb, scope: Scope<'_>) -> Result<(), Problem> {
        let checked = match &self.standing {
            Standing::Anyone => return Ok(()),
            Standing::Known(credential) => credential.check(verb, scope),
            Standing::Unknown => Err("a credential is needed".to_owned()),
        };
        checked.map_err(|why| {
            self.access.metrics.refused(self.listener, Reason::Forbidden);
            audit::refused(self, verb, scope, &why);
            let mut problem = Problem::new(Code::Forbidden, why);
            problem.resource = scope.resource().map(ToString::to_string);
            problem.trace_id = Some(self.trace_id.to_string());
            problem
        })
    }

    /// Begins a change, if the caller may make it.
    ///
    /// # Errors
    /// A refusal, which was counted and logged.
    pub fn begin(&self, verb: Verb, scope: Scope<'_>) -> Result<Action, Problem> {
        self.demand(verb, scope)?;
        Ok(Action::new(self.clone(), verb, scope))
    }

    /// What the log calls the caller.
    fn name(&self) -> &str {
        match &self.standing {
            Standing::Anyone => "anyone",
            Standing::Known(credential) => credential.name(),
            Standing::Unknown => "unknown",
        }
    }
}

/// A route that nobody guards lets nobody in.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Problem> {
        let caller = parts.extensions.get().cloned();
        caller.ok_or_else(|| Problem::new(Code::Forbidden, "this path is not guarded"))
    }
}

impl Listener {
    const ALL: [Listener; 2] = [Listener::Leases, Listener::Admin];

    const fn as_str(self) -> &'static str {
        match self {
            Listener::Leases => "leases",
            Listener::Admin => "admin",
        }
    }
}

#[cfg(test)]
mod tests;
