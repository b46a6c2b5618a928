//! A new configuration for a gateway that serves.
//!
//! In two steps: [`Reconfigure::prepare`] makes all that is needed, and may refuse; [`Reconfigure::apply`] cannot fail.
//! Refused is what would break the promise for writes that are under way or granted: another resource for a path
//! that is fenced. Settle times may change at any time: each write and each grant keeps the one it was made with,
//! an upstream with another one gets new connections, and a grant on record with a shorter one is recorded anew
//! before the next write under it.

use std::sync::{Arc, PoisonError};

use super::listener::Core;
use super::route::{Comparison, compare};
use super::service::Worker;
use crate::config::Config;

/// Takes new configurations over for the threads of a gateway.
pub struct Reconfigure(pub(super) Arc<Core>);

/// A configuration that can be taken over.
pub struct Prepared {
    config: Arc<Config>,
    /// One for each thread.
    workers: Vec<Arc<Worker>>,
    /// What nobody may overlook: which routes protect less than before.
    pub opened: Vec<Opened>,
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
    /// Makes all that `config` needs. Nothing is changed yet.
    ///
    /// # Errors
    /// Why it cannot be taken over by a running gateway, one reason a line.
    pub fn prepare(&self, config: &Arc<Config>) -> Result<Prepared, Vec<String>> {
        let mut workshop = self.0.workshop.lock().unwrap_or_else(PoisonError::into_inner);
        let olds: Vec<_> = self.0.threads.iter().map(|thread| thread.current()).collect();
        let before = workshop.loads.clone();
        workshop.open(config);
        let workers: Result<Vec<_>, _> =
            olds.iter().map(|old| workshop.next(config, old)).collect();
        let workers = workers.map_err(|error| vec![error.to_string()]);
        let opened = workers.as_ref().ok().and_then(|workers| olds.first().zip(workers.first()));
        let opened = opened.map_or(Ok(Vec::new()), |(old, new)| judge(old, new));
        match (workers, opened) {
            (Ok(workers), Ok(opened)) => {
                Ok(Prepared { config: Arc::clone(config), workers, opened })
            }
            (Err(reasons), _) | (_, Err(reasons)) => {
                workshop.loads = before;
                Err(reasons)
            }
        }
    }

    /// Takes the configuration over: requests that begin from now on are served by it.
    pub fn apply(&self, prepared: Prepared) {
        let limits = &prepared.config.limits;
        self.0.connections.allow(limits.connections);
        self.0.clients.allow(limits.client_connections);
        for (thread, worker) in self.0.threads.iter().zip(prepared.workers) {
            thread.replace(worker);
        }
    }
}

fn judge(old: &Worker, new: &Worker) -> Result<Vec<Opened>, Vec<String>> {
    let Comparison { renamed, opened, trusting } = compare(&old.routes, &new.routes);
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
