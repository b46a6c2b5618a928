//! File descriptors: each connection takes one, on either side.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// For the store, the coordinator, logs, timers and listeners, and for connections that are being refused.
const OTHERS: u64 = 1024;

/// Lets the process have as many as its limits on connections need, as far as the system allows. Says so where
/// it does not: connections would be refused by chance then, and not by the limits.
pub(super) fn provide(config: &Config) {
    let needed = needed(config);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return;
    }
    let granted = maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(granted), maximum });
    let is_raised = raised.is_ok();
    if !is_raised || granted < needed {
        let has = if is_raised { Some(granted) } else { current };
        tracing::warn!(
            needed,
            has,
            "the limit on open files is below what the limits on connections need: raise it (ulimit -n, or \
             LimitNOFILE of systemd), or lower limits.connections"
        );
    }
}

/// Clients, as many connections to upstreams at the most, and the two APIs.
fn needed(config: &Config) -> u64 {
    let limits = &config.limits;
    let upstreams: usize = config.upstreams.iter().map(|upstream| upstream.connections).sum();
    let upstreams = upstreams.saturating_mul(config.listen.workers).min(limits.connections);
    let all = limits.connections + upstreams + 2 * limits.api.connections;
    u64::try_from(all).unwrap_or(u64::MAX).saturating_add(OTHERS)
}
