//! What a thread serves with, and how that is exchanged while it serves.
//!
//! A [`Worker`] is made of one configuration and never changes. A new configuration makes a new worker for each
//! thread; the old one is marked, and whoever still has it looks for its successor when the next request comes. So
//! a request stays with the routes and limits that it began with, and the usual request pays for one look at a
//! mark. Deliberately absent: any change of a route, upstream or limit in place.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::HeadLimits;
use super::door::Door;
use super::listener::GatewayParts;
use super::load::{ClientLimits, Clients};
use super::route::{RouteLoads, RouteTable};
use super::service::Worker;
use super::upstream::Upstream;
use super::vigil::{Rounds, Vigils};
use super::watch::Patience;
use crate::clock::Boottime;
use crate::config::{self, Config};
use crate::tls::ClientTls;
use crate::trace::TraceIds;

/// Refused connections of one thread that are told so at a time; others are closed without a word.
const LAST_WORDS: usize = 64;

/// One thread of the proxy listener.
pub(super) struct Thread {
    current: Mutex<Arc<Worker>>,
    pub(super) vigils: Vigils,
}

impl Thread {
    pub(super) fn new(
        worker: Arc<Worker>,
        closing: CancellationToken,
        abort: CancellationToken,
    ) -> Thread {
        let vigils = Vigils::new(rounds(&worker.config), closing, abort);
        Thread { current: Mutex::new(worker), vigils }
    }

    /// Serves with this from now on; answers what it has served with.
    pub(super) fn replace(&self, worker: Arc<Worker>) -> Weak<Worker> {
        self.vigils.change(rounds(&worker.config));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, Arc::clone(&worker));
        // Marked under the lock: whoever sees it finds the new one.
        old.is_replaced.store(true, Ordering::Release);
        drop(current);
        for upstream in &old.upstreams {
            if !worker.upstreams.iter().any(|kept| Arc::ptr_eq(kept, upstream)) {
                upstream.retire();
            }
        }
        Arc::downgrade(&old)
    }

    pub(super) fn current(&self) -> Arc<Worker> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The worker for the next request on a connection that has `worker`.
    pub(super) fn successor(&self, worker: &Arc<Worker>) -> Arc<Worker> {
        if worker.is_replaced.load(Ordering::Acquire) {
            return self.current();
        }
        Arc::clone(worker)
    }
}

/// What workers are made of beside the configuration.
pub(super) struct Workshop {
    pub(super) parts: GatewayParts,
    pub(super) clients: Arc<Clients>,
    /// Of all routes that there have been since the start.
    pub(super) loads: RouteLoads,
    /// Configurations of before that still matter.
    pub(super) former: Vec<Former>,
}

/// A configuration that was in use, for as long as a write may be under way by it or may not have settled.
pub(super) struct Former {
    pub(super) config: Arc<Config>,
    /// What threads served with; gone when no request has it any more.
    pub(super) workers: Vec<Weak<Worker>>,
    /// When it was first seen that nobody has it.
    pub(super) unused_since: Option<Boottime>,
}

impl Former {
    /// Whether writes by it may still be on their way to an upstream.
    pub(super) fn matters(&mut self, now: Boottime) -> bool {
        if self.workers.iter().any(|worker| worker.strong_count() > 0) {
            return true;
        }
        let longest = |times: fn(&config::Upstream) -> Duration| {
            self.config.upstreams.iter().map(times).max().unwrap_or_default()
        };
        let settled = longest(|upstream| upstream.timeout) + longest(|upstream| upstream.settle);
        now < *self.unused_since.get_or_insert(now) + settled
    }
}

impl Workshop {
    /// A worker for a new thread.
    pub(super) fn first(&self, config: &Arc<Config>, runtime: Handle) -> io::Result<Arc<Worker>> {
        self.worker(config, None, runtime, TaskTracker::new())
    }

    /// A worker for the thread of `old`, with the connections to those upstreams that stay as they are.
    pub(super) fn next(&self, config: &Arc<Config>, old: &Worker) -> io::Result<Arc<Worker>> {
        self.worker(config, Some(old), old.runtime.clone(), old.tasks.clone())
    }

    fn worker(
        &self,
        config: &Arc<Config>,
        old: Option<&Worker>,
        runtime: Handle,
        tasks: TaskTracker,
    ) -> io::Result<Arc<Worker>> {
        let GatewayParts { fences, clock, metrics, .. } = &self.parts;
        let limits = &config.limits;
        let upstreams = config.upstreams.iter().map(|upstream| {
            let kept = old.and_then(|old| {
                let before = old.config.upstreams.iter().position(|before| before == upstream)?;
                old.upstreams.get(before).map(Arc::clone)
            });
            let made = || {
                let tls = self.upstream_tls(upstream)?;
                Ok(Arc::new(Upstream::new(upstream, tls, *clock, runtime.clone())))
            };
            kept.map_or_else(made, Ok)
        });
        Ok(Arc::new(Worker {
            fences: Arc::clone(fences),
            upstreams: upstreams.collect::<io::Result<_>>()?,
            // A table for each thread: counting references to shared routes would make the threads
            // wait for each other.
            routes: RouteTable::new(config, metrics, &self.loads).map_err(io::Error::other)?,
            head: HeadLimits {
                bytes: limits.head_bytes,
                fields: limits.head_fields,
                streams: limits.streams,
                resets: limits.h2_resets,
            },
            body_timeout: limits.body_timeout,
            client_limits: ClientLimits::new(limits),
            requests: u32::try_from(limits.keep_alive_requests).unwrap_or(u32::MAX),
            clients: Arc::clone(&self.clients),
            limit_hits: self.parts.limit_hits.clone(),
            clock: *clock,
            traces: TraceIds::new(),
            spans: self.parts.spans.clone(),
            forwarded: config.listen.forwarded,
            door: self.door(config),
            last_words: Arc::new(Semaphore::new(LAST_WORDS)),
            tasks,
            runtime,
            shed_logged: 0.into(),
            is_replaced: false.into(),
            config: Arc::clone(config),
        }))
    }

    /// The TLS that an upstream has had since the start: whoever follows the files knows of no other.
    fn upstream_tls(&self, upstream: &config::Upstream) -> io::Result<Option<Arc<ClientTls>>> {
        let Some(files) = &upstream.tls else { return Ok(None) };
        let known = self.parts.upstream_tls.iter().flatten().find(|tls| tls.files() == files);
        known.map(|tls| Some(Arc::clone(tls))).ok_or_else(|| {
            let name = &upstream.name;
            io::Error::other(format!(
                "upstream {name:?}: a running gateway cannot begin with TLS to another host; restart it"
            ))
        })
    }

    fn door(&self, config: &Config) -> Door {
        Door {
            tls: self.parts.tls.clone(),
            proxy_protocol_from: config.listen.proxy_protocol_from.clone(),
            trusted_proxies: config.listen.trusted_proxies.clone(),
            limit: config.limits.handshake_timeout,
        }
    }

    /// Begins to count what new routes have under way.
    pub(super) fn open(&mut self, config: &Config) {
        for route in &config.routes {
            self.loads.entry(route.name.clone()).or_default();
        }
    }

    /// Takes `config` for the one in use, answers the one before, and forgets routes that are gone: they count on in their requests, but
    /// for nobody.
    pub(super) fn settle(&mut self, config: &Arc<Config>) -> Arc<Config> {
        let before = std::mem::replace(&mut self.parts.config, Arc::clone(config));
        self.parts.metrics.configure(config, Some(&before));
        self.loads.retain(|name, _| config.routes.iter().any(|route| route.name == *name));
        before
    }
}

fn rounds(config: &Config) -> Rounds {
    Rounds { period: period(config), patience: Patience::new(&config.limits) }
}

/// How often connections are looked at: often enough that the shortest limit is met within an eighth.
fn period(config: &Config) -> Duration {
    let timeouts = config.upstreams.iter().map(|upstream| upstream.timeout);
    let drains = config.routes.iter().map(|route| route.drain);
    let limits = &config.limits;
    let shortest = timeouts
        .chain(drains)
        .chain([limits.head_timeout, limits.body_timeout, limits.idle_timeout])
        .min()
        .unwrap_or_default();
    (shortest / 8).clamp(Duration::from_millis(25), Duration::from_millis(500))
}
