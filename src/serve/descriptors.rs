//! File descriptors: each connection takes one, on either side.

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::config::Config;

/// For the store, the coordinator, logs, timers and listeners, and for connections that are being refused.
const OTHERS: u64 = 1024;

/// Where Linux says what there is. Not asked for by the system call, which a sandbox may refuse as it refuses to
/// change limits.
const LIMITS: &str = "/proc/self/limits";

/// Lets the process have as many as its limits on connections need, as far as the system allows. Says so where
/// it does not: connections would be refused by chance then, and not by the limits.
pub(super) fn provide(config: &Config) {
    let needed = needed(config);
    let Some((current, maximum)) = std::fs::read_to_string(LIMITS).ok().and_then(|text| of(&text))
    else {
        return;
    };
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

/// The soft and the hard limit on open files; `None` for none.
fn of(limits: &str) -> Option<(Option<u64>, Option<u64>)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line.split_whitespace();
    let mut next = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some((next()?, next()?))
}

/// Clients, as many connections to upstreams at the most, and the two APIs.
fn needed(config: &Config) -> u64 {
    let limits = &config.limits;
    let upstreams: usize = config.upstreams.iter().map(|upstream| upstream.connections).sum();
    let upstreams = upstreams.saturating_mul(config.listen.workers).min(limits.connections);
    let all = limits.connections + upstreams + 2 * limits.api.connections;
    u64::try_from(all).unwrap_or(u64::MAX).saturating_add(OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_limits_are_read_as_linux_writes_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             96230                96230                processes \n\
                    Max open files            1024                 524288               files     \n";
        assert_eq!(of(text), Some((Some(1024), Some(524_288))));
        assert_eq!(of("Max open files   7 unlimited files"), Some((Some(7), None)));
        assert_eq!(of("Max open files   many more files"), None);
        assert!(std::fs::read_to_string(LIMITS).is_ok_and(|text| of(&text).is_some()));
    }
}
