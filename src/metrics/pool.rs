//! A pool of connections to PostgreSQL, as seen from here. Made before anything is registered, so that whoever
//! has a pool has them, and a worker exports none.

use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry, Result};

use super::SECONDS;

/// Clones share their numbers.
#[derive(Clone, Debug)]
pub(crate) struct PoolMetrics {
    pool: &'static str,
    connects: IntCounter,
    wait: Histogram,
}

/// How many connections there are, and how many of them are idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connections {
    pub(crate) all: u32,
    pub(crate) idle: usize,
}

/// Looks at the pool at each scrape.
struct Look<F> {
    busy: IntGauge,
    idle: IntGauge,
    look: F,
}

impl PoolMetrics {
    /// Of the pool of this name.
    pub(crate) fn new(pool: &'static str) -> PoolMetrics {
        PoolMetrics::try_new(pool).expect("names and bounds are constants that are valid")
    }

    fn try_new(pool: &'static str) -> Result<PoolMetrics> {
        let wait = HistogramOpts::new(
            "fencegate_postgres_connection_wait_seconds",
            "Time until a call had a connection, by pool.",
        );
        Ok(PoolMetrics {
            pool,
            connects: IntCounter::with_opts(
                Opts::new("fencegate_postgres_connects_total", "Connections made, by pool.")
                    .const_label("pool", pool),
            )?,
            wait: Histogram::with_opts(wait.const_label("pool", pool).buckets(SECONDS.to_vec()))?,
        })
    }

    pub(crate) fn connected(&self) {
        self.connects.inc();
    }

    pub(crate) fn waited(&self, waited: Duration) {
        self.wait.observe(waited.as_secs_f64());
    }

    /// Registers them with the present state of the pool, which has at most `limit` connections.
    ///
    /// # Errors
    /// The pool is registered already.
    pub(crate) fn register(
        &self,
        registry: &Registry,
        limit: u32,
        look: impl Fn() -> Connections + Send + Sync + 'static,
    ) -> Result<()> {
        let gauge = |name, help, state: Option<&str>| {
            let mut options = Opts::new(name, help).const_label("pool", self.pool);
            if let Some(state) = state {
                options = options.const_label("state", state);
            }
            IntGauge::with_opts(options)
        };
        let connections = |state| {
            let help = "Connections, by pool and state.";
            gauge("fencegate_postgres_connections", help, Some(state))
        };
        let most = gauge(
            "fencegate_postgres_connections_limit",
            "Connections that there may be, by pool.",
            None,
        )?;
        most.set(i64::from(limit));
        registry.register(Box::new(most))?;
        registry.register(Box::new(self.connects.clone()))?;
        registry.register(Box::new(self.wait.clone()))?;
        let (busy, idle) = (connections("busy")?, connections("idle")?);
        registry.register(Box::new(Look { busy, idle, look }))
    }
}

impl<F: Fn() -> Connections + Send + Sync> Collector for Look<F> {
    fn desc(&self) -> Vec<&Desc> {
        [self.busy.desc(), self.idle.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Connections { all, idle } = (self.look)();
        let idle = idle.cast_signed() as i64;
        self.idle.set(idle);
        // The two are looked at one after the other.
        self.busy.set((i64::from(all) - idle).max(0));
        let mut families = self.busy.collect();
        families.extend(self.idle.collect());
        families
    }
}
