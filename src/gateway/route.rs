//! From a path to a route, and from a route to the resource.
//!
//! A pure function of the configuration and the normal path. The resource comes from the route
//! alone; nothing else in the request can name it.

mod comparison;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use matchit::Params;

use super::load::RouteLoad;
use super::target;
use crate::config::{self, Case, Config, Fenced, Mode, Rate, Route as RouteConfig, Tokens};
use crate::fence::Terms;
use crate::fences::Demand;
use crate::metrics::{GatewayMetrics, RouteMetrics};

pub(super) use comparison::{Comparison, compare};

/// Matches every path, `/` included, although matchit's catch-all does not.
const EVERY_PATH: &str = "/{*rest}";

/// What an observed write may lose to its judgement.
const OBSERVE_WITHIN: Duration = Duration::from_secs(1);

/// All routes.
pub(super) struct RouteTable {
    paths: matchit::Router<usize>,
    /// The same in lower case, if a route ignores case.
    caseless: Option<matchit::Router<usize>>,
    routes: Vec<Arc<Route>>,
    /// Counts what matches no route.
    pub(super) unmatched: RouteMetrics,
}

/// One route, ready for use.
pub(super) struct Route {
    pub(super) name: Arc<str>,
    path: String,
    pub(super) upstream_name: Arc<str>,
    pub(super) upstream: usize,
    pub(super) demand: Demand,
    pub(super) observe: bool,
    pub(super) timeout: Duration,
    pub(super) buffer_bytes: usize,
    pub(super) body_bytes: u64,
    /// Requests that it lets in at a time and in a span of time.
    pub(super) lets_in: (Option<usize>, Option<Rate>),
    pub(super) load: Arc<RouteLoad>,
    pub(super) metrics: RouteMetrics,
    fenced: Fenced,
    ignores_case: bool,
    template: Vec<Part>,
}

/// What routes have under way, by their names: it outlasts a table.
pub(super) type RouteLoads = HashMap<String, Arc<RouteLoad>>;

#[derive(PartialEq, Eq)]
enum Part {
    Text(String),
    Path,
    Parameter(String),
}

impl RouteTable {
    /// Makes the table of a checked configuration.
    ///
    /// # Errors
    /// A path pattern is invalid or conflicts with another one.
    pub(super) fn new(
        config: &Config,
        metrics: &GatewayMetrics,
        loads: &RouteLoads,
    ) -> Result<RouteTable, matchit::InsertError> {
        let ignores_case = config.routes.iter().any(|route| route.case == Case::Ignore);
        Ok(RouteTable {
            paths: router(config, str::to_owned)?,
            caseless: ignores_case.then(|| router(config, config::caseless_pattern)).transpose()?,
            routes: (config.routes.iter())
                .map(|route| Arc::new(Route::new(config, route, metrics, loads)))
                .collect(),
            unmatched: metrics.unmatched(),
        })
    }

    /// The route of a normal path, and the name of the resource.
    ///
    /// The route that is the most specific one for the path in lower case takes it if it ignores case: an upstream that
    /// does would serve `/Accounts/7` as `/accounts/7`, so no wider route may have it.
    pub(super) fn find<'p>(&self, path: &'p str) -> Option<(&Arc<Route>, Cow<'p, str>)> {
        if let Some(caseless) = &self.caseless {
            let lower = target::without_case(path);
            if let Ok(found) = caseless.at(&lower)
                && let Some(route) = self.routes.get(*found.value)
                && route.ignores_case
            {
                return Some((route, route.resource(&lower, &found.params).into_owned().into()));
            }
        }
        let found = self.paths.at(path).ok()?;
        let route = self.routes.get(*found.value)?;
        Some((route, route.resource(path, &found.params)))
    }
}

fn router(
    config: &Config,
    spelled: impl Fn(&str) -> String,
) -> Result<matchit::Router<usize>, matchit::InsertError> {
    let mut paths = matchit::Router::new();
    for (at, route) in config.routes.iter().enumerate() {
        paths.insert(spelled(&route.path), at)?;
    }
    let everything = config.routes.iter().position(|route| route.path == EVERY_PATH);
    if let Some(everything) = everything
        && !config.routes.iter().any(|route| route.path == "/")
    {
        paths.insert("/", everything)?;
    }
    Ok(paths)
}

impl Route {
    fn new(
        config: &Config,
        route: &RouteConfig,
        metrics: &GatewayMetrics,
        loads: &RouteLoads,
    ) -> Route {
        let upstream = &config.upstreams[route.upstream];
        Route {
            name: Arc::from(route.name.as_str()),
            path: route.path.clone(),
            upstream_name: Arc::from(upstream.name.as_str()),
            upstream: route.upstream,
            demand: demand(route, upstream.settle),
            observe: route.mode == Mode::Observe,
            timeout: upstream.timeout,
            buffer_bytes: route.buffer_bytes,
            body_bytes: route.body_bytes,
            lets_in: (route.concurrency, route.rate),
            load: loads.get(&route.name).cloned().unwrap_or_default(),
            metrics: metrics.route(&route.name),
            fenced: route.fenced.clone(),
            ignores_case: route.case == Case::Ignore,
            template: parts(&route.resource),
        }
    }

    /// Whether a request with this method needs a token. A method that nobody knows is a write, and
    /// so is a request that claims to be one (`is_disguised`), whichever method it claims. Case does
    /// not matter in a list of methods: some servers take `put` for PUT.
    pub(super) fn fences(&self, method: &Method, is_disguised: bool) -> bool {
        match &self.fenced {
            Fenced::Writes => is_disguised || !is_read(method),
            Fenced::Only(methods) => {
                let is_method = |fenced: &String| fenced.eq_ignore_ascii_case(method.as_str());
                methods.iter().any(|fenced| is_disguised || is_method(fenced))
            }
        }
    }

    fn listed_methods(&self) -> &[String] {
        match &self.fenced {
            Fenced::Writes => &[],
            Fenced::Only(methods) => methods,
        }
    }

    fn resource<'p>(&self, path: &'p str, params: &Params<'_, 'p>) -> Cow<'p, str> {
        let spelled = |text: &'p str| match self.ignores_case {
            true => Cow::Owned(target::without_case(text)),
            false => Cow::Borrowed(text),
        };
        if let [Part::Path] = self.template.as_slice() {
            return spelled(path);
        }
        let mut name = String::with_capacity(path.len() + 32);
        for part in &self.template {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Path => name.push_str(&spelled(path)),
                Part::Parameter(key) => {
                    name.push_str(&spelled(params.get(key).unwrap_or_default()))
                }
            }
        }
        Cow::Owned(name)
    }
}

fn demand(route: &RouteConfig, settle: Duration) -> Demand {
    let held = route.tokens == Tokens::Held;
    match route.mode {
        Mode::Enforce => Demand {
            terms: Terms { settle, drain: Some(route.drain), held },
            wait: route.wait,
            limit: None,
        },
        // An observer cuts nobody, is cut by nobody, and waits for no other write. It does wait
        // for the store and the coordinator, as its mark has to be right once it enforces.
        Mode::Observe => Demand {
            terms: Terms { settle, drain: None, held },
            wait: Duration::ZERO,
            limit: Some(OBSERVE_WITHIN),
        },
    }
}

/// GET, HEAD and OPTIONS have no effect to protect.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn parts(template: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((text, tail)) = rest.split_once('{') {
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        let (key, tail) = tail.split_once('}').unwrap_or((tail, ""));
        parts.push(match key {
            "path" => Part::Path,
            key => Part::Parameter(key.to_owned()),
        });
        rest = tail;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    parts
}
