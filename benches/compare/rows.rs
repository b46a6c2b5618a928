//! The rows of the table, and what each figure has to be.

/// What can be measured; the names of `--only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Row {
    /// nginx against a second nginx: the error of the harness
    Harness,
    /// CPU per request against nginx as a plain reverse proxy
    Nginx,
    /// CPU per request against Fencegate's own unfenced route
    Unfenced,
    /// CPU per request against nginx with auth_request to a check service
    Auth,
    /// p99 latency against nginx
    Latency,
    /// CPU per request over TLS against nginx over TLS
    Tls,
    /// CPU per request over HTTP/2 against nginx over HTTP/2
    Http2,
    /// Raises per second, in parallel against one at a time
    Raises,
    /// Start-up with a million fences against none
    Startup,
    /// Memory of 100,000 active resources
    Memory,
    /// CPU per request with limits by client and by route against none
    Limits,
    /// CPU per request with a credential for the upstream against none
    Credential,
    /// A scrape of the metrics with 100,000 active resources
    Scrape,
    /// CPU per request with PostgreSQL, etcd and three instances against one machine's
    Shared,
    /// Raises per second in PostgreSQL, in parallel against one at a time
    #[value(name = "pg-raises")]
    SharedRaises,
    /// Raises per second in PostgreSQL against pgbench's upserts
    Pgbench,
    /// What a raise takes beyond one read of etcd and one commit
    #[value(name = "raise-ms")]
    RaiseLatency,
    /// Handover from one gateway to another
    Takeover,
}

/// A limit of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    fn holds(self, figure: f64) -> bool {
        match self {
            Limit::AtMost(limit) => figure <= limit,
            Limit::AtLeast(limit) => figure >= limit,
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Limit::AtMost(limit) => write!(f, "≤ {limit}"),
            Limit::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

/// What a figure has to be, and what it would rather be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Goal {
    pub(crate) must: Option<Limit>,
    pub(crate) aim: Option<Limit>,
}

impl Goal {
    /// The verdict on a figure; nothing for a figure without limits.
    pub(crate) fn verdict(self, figure: f64) -> &'static str {
        let holds = |limit: Option<Limit>| limit.is_some_and(|limit| limit.holds(figure));
        match self.must {
            None => "",
            Some(_) if !holds(self.must) => "MISS",
            Some(_) if holds(self.aim) => "pass, aim",
            Some(_) => "pass",
        }
    }
}

impl Row {
    /// The name in the table and after `--only`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Row::Harness => "harness",
            Row::Nginx => "nginx",
            Row::Unfenced => "unfenced",
            Row::Auth => "auth",
            Row::Latency => "latency",
            Row::Tls => "tls",
            Row::Http2 => "http2",
            Row::Raises => "raises",
            Row::Startup => "startup",
            Row::Memory => "memory",
            Row::Limits => "limits",
            Row::Credential => "credential",
            Row::Scrape => "scrape",
            Row::Shared => "shared",
            Row::SharedRaises => "pg-raises",
            Row::Pgbench => "pgbench",
            Row::RaiseLatency => "raise-ms",
            Row::Takeover => "takeover",
        }
    }

    /// What the row's ratio has to be; for `Memory` it is MiB, for `Scrape`
    /// and the last two milliseconds.
    pub(crate) const fn goal(self) -> Goal {
        use Limit::{AtLeast, AtMost};
        let (must, aim) = match self {
            // No goal but a gauge: what lies within its spread is no difference.
            Row::Harness => (None, None),
            Row::Nginx => (Some(AtMost(1.10)), Some(AtMost(0.85))),
            Row::Unfenced => (Some(AtMost(1.05)), Some(AtMost(1.02))),
            Row::Auth => (Some(AtMost(0.55)), Some(AtMost(0.45))),
            Row::Latency => (Some(AtMost(1.2)), Some(AtMost(1.0))),
            Row::Tls => (Some(AtMost(1.10)), Some(AtMost(0.85))),
            Row::Http2 => (Some(AtMost(1.3)), Some(AtMost(1.0))),
            Row::Raises => (Some(AtLeast(10.0)), Some(AtLeast(25.0))),
            // "No growth", with room for the scatter of a few milliseconds.
            Row::Startup => (Some(AtMost(1.2)), None),
            Row::Memory => (Some(AtMost(64.0)), None),
            Row::Limits | Row::Credential => (Some(AtMost(1.05)), Some(AtMost(1.02))),
            Row::Scrape => (Some(AtMost(10.0)), None),
            Row::Shared => (Some(AtMost(1.05)), None),
            Row::SharedRaises => (Some(AtLeast(10.0)), None),
            Row::Pgbench => (Some(AtLeast(0.5)), Some(AtLeast(1.5))),
            Row::RaiseLatency => (Some(AtMost(1.0)), None),
            Row::Takeover => (Some(AtMost(10.0)), None),
        };
        Goal { must, aim }
    }
}
