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
use super::threads::{Former, Thread};
use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::{Exemplars, FenceMetrics, GatewayMetrics};

const RENAMED: &str = "writes under way and granted under the old name would not be waited for; stop every gateway, and \
                       start them with it when the settle times are over";
const UNSETTLED: &str = "that name is of a configuration before the present one, by which writes may be under way or not \
                         settled, and they would not be waited for; try again when they are, or stop every gateway, and \
                         start them with it when the settle times are over";

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
        let Some(thread) = self.0.threads.first() else { return Ok(Vec::new()) };
        let mut workshop = self.0.workshop.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = workshop.parts.clock;
        let now = clock.now();
        workshop.former.retain_mut(|former| former.matters(now));
        let former: Vec<_> =
            workshop.former.iter().map(|former| Arc::clone(&former.config)).collect();
        drop(workshop);
        let table = table(config, clock)?;
        let opened = judge(&thread.current().routes, &table)?;
        // In two steps it would be no other: away with the route, and back with another name.
        for former in former {
            renames(compare(&self::table(&former, clock)?, &table).renamed, UNSETTLED)?;
        }
        Ok(opened)
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
        let mut workshop = self.0.workshop.lock().unwrap_or_else(PoisonError::into_inner);
        let before = workshop.settle(&prepared.config);
        let limits = &prepared.config.limits;
        self.0.connections.allow(limits.connections);
        self.0.clients.allow(limits.client_connections);
        let replaced = self.0.threads.iter().zip(prepared.workers);
        let workers = replaced.map(|(thread, worker)| thread.replace(worker)).collect();
        let former = Former { config: before, workers, unused_since: None };
        workshop.former.push(former);
    }
}

/// The routes of a configuration. Its series are for nobody: those of one that is refused must not appear.
fn table(config: &Config, clock: Clock) -> Result<RouteTable, Vec<String>> {
    let (registry, exemplars) = (Registry::new(), Exemplars::new(clock));
    FenceMetrics::register(&registry, &exemplars)
        .and_then(|fences| GatewayMetrics::register(&registry, &exemplars, &fences))
        .map_err(|error| error.to_string())
        .and_then(|metrics| {
            let table = RouteTable::new(config, &metrics, &RouteLoads::new());
            table.map_err(|error| error.to_string())
        })
        .map_err(|error| vec![error])
}

fn renames(renamed: Vec<String>, why: &str) -> Result<(), Vec<String>> {
    if renamed.is_empty() {
        return Ok(());
    }
    Err(renamed.into_iter().map(|line| format!("{line}: {why}")).collect())
}

fn judge(old: &RouteTable, new: &RouteTable) -> Result<Vec<Opened>, Vec<String>> {
    let Comparison { renamed, opened, trusting } = compare(old, new);
    renames(renamed, RENAMED)?;
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
