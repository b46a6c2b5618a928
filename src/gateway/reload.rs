//! A new configuration for a gateway that serves.
//!
//! [`Reconfigure::judge`] may refuse it; [`Reconfigure::prepare`] makes all that is needed; [`Reconfigure::apply`] cannot
//! fail. Refused is what would break the promise for writes that are under way or granted: another resource for a path
//! that is fenced. Settle times may change at any time: each write and each grant keeps the one it was made with,
//! an upstream with another one gets new connections, and a grant on record with a shorter one is recorded anew
//! before the next write under it.

use std::io;
use std::sync::{Arc, PoisonError};

use prometheus::Registry;

use super::listener::Core;
use super::route::{Comparison, RouteLoads, RouteTable, compare};
use super::service::Worker;
use super::threads::Thread;
use crate::config::Config;
use crate::metrics::{Exemplars, FenceMetrics, GatewayMetrics};

/// Takes new configurations over for the threads of a gateway.
pub struct Reconfigure(pub(super) Arc<Core>);

/// A configuration that can be taken over.
pub struct Prepared {
    config: Arc<Config>,
    /// One for each thread.
    workers: Vec<Arc<Worker>>,
}

/// A route that protects less than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its name; where another route takes its paths, that one's.
    pub route: String,
    /// What has changed, in words.
    pub what: String,
}

impl Reconfigure {
    /// Whether `config` may take the place of the present one, and which routes protect less by it.
    ///
    /// # Errors
    /// Why it may not, one reason a line.
    pub fn judge(&self, config: &Config) -> Result<Vec<Opened>, Vec<String>> {
        // Its series are for nobody: those of a configuration that is refused must not appear.
        let clock = self.0.workshop.lock().unwrap_or_else(PoisonError::into_inner).parts.clock;
        let (registry, exemplars) = (Registry::new(), Exemplars::new(clock));
        let table = FenceMetrics::register(&registry, &exemplars)
            .and_then(|fences| GatewayMetrics::register(&registry, &exemplars, &fences))
            .map_err(|error| error.to_string())
            .and_then(|metrics| {
                let table = RouteTable::new(config, &metrics, &RouteLoads::new());
                table.map_err(|error| error.to_string())
            })
            .map_err(|error| vec![error])?;
        let Some(thread) = self.0.threads.first() else { return Ok(Vec::new()) };
        judge(&thread.current().routes, &table)
    }

    /// Makes all that `config` needs. Nothing is changed yet.
    ///
    /// # Errors
    /// What cannot be made.
    pub fn prepare(&self, config: &Arc<Config>) -> io::Result<Prepared> {
        let mut workshop = self.0.workshop.lock().unwrap_or_else(PoisonError::into_inner);
        workshop.open(config);
        let next = |thread: &Arc<Thread>| workshop.next(config, &thread.current());
        let workers = self.0.threads.iter().map(next).collect::<io::Result<_>>()?;
        Ok(Prepared { config: Arc::clone(config), workers })
    }

    /// Takes the configuration over: requests that begin from now on are served by it.
    pub fn apply(&self, prepared: Prepared) {
        self.0.workshop.lock().unwrap_or_else(PoisonError::into_inner).settle(&prepared.config);
        let limits = &prepared.config.limits;
        self.0.connections.allow(limits.connections);
        self.0.clients.allow(limits.client_connections);
        for (thread, worker) in self.0.threads.iter().zip(prepared.workers) {
            thread.replace(worker);
        }
    }
}

fn judge(old: &RouteTable, new: &RouteTable) -> Result<Vec<Opened>, Vec<String>> {
    let Comparison { renamed, opened, trusting } = compare(old, new);
    if !renamed.is_empty() {
        let why = "writes under way and granted under the old name would not be waited for; stop every gateway, and \
                   start them with it when the settle times are over";
        return Err(renamed.into_iter().map(|line| format!("{line}: {why}")).collect());
    }
    let opened = opened.into_iter().map(|((_, route), methods)| {
        let methods: Vec<_> = methods.into_iter().collect();
        Opened { route, what: format!("{} needs no token any more", methods.join(", ")) }
    });
    let trusting = trusting.into_iter().map(|route| Opened {
        route,
        what: "the coordinator is not asked any more whose a new token is".into(),
    });
    Ok(opened.chain(trusting).collect())
}
