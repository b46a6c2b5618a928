//! The configuration as the rest of the program sees it: complete, checked, without options that
//! mean nothing.
//!
//! [`load()`] makes one out of a file, the environment and flags, and reports every mistake at once.
//! It works in three steps: each source is read into *settings*, values that know where they came
//! from (`file`, `environment`); the settings are merged, the later source winning; then each value
//! is read (`reader`, `build`, `values`, `pattern`) and what they mean together is checked
//! (`check`). `keys` is the one list of what can be set.
//!
//! Deliberately absent: reading the process's own environment, which is passed in, and changing
//! anything while the gateway runs; `changes` says what may change then.

mod access;
mod build;
mod changes;
mod check;
mod coordinator;
mod environment;
mod file;
mod flags;
mod keys;
mod limits;
mod load;
mod mistakes;
mod pattern;
mod reader;
mod settings;
mod show;
#[cfg(test)]
mod tests;
mod tls;
mod urls;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::access::CredentialsFile;
use crate::fence::Resource;
use crate::live_file::Live;
use crate::store::PostgresSettings;
use crate::tls::{ClientFiles, ServerFiles};
pub use access::UpstreamCredential;
pub use coordinator::Coordinator;
pub(crate) use file::read_text;
pub use flags::ServeFlags;
pub use load::{Loaded, Override, Sources, load};
pub use mistakes::Mistakes;
pub(crate) use pattern::caseless as caseless_pattern;
pub(crate) use values::duration;

/// Everything that `fencegate serve` needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: Listen,
    /// Who may do what on the lease and admin listeners.
    pub access: Access,
    /// Where marks and grants are kept.
    pub store: Store,
    /// Who issues leases and tokens.
    pub coordinator: Coordinator,
    /// Upstreams by position; a route names one by its index.
    pub upstreams: Vec<Upstream>,
    /// Routes, in the order of the file.
    pub routes: Vec<Route>,
    /// What bounds clients.
    pub limits: Limits,
    /// How the process ends.
    pub shutdown: Shutdown,
    /// What is measured beyond the usual.
    pub metrics: Metrics,
    /// Where traces go.
    pub telemetry: Telemetry,
}

impl Config {
    /// The secrets that are read anew when their files change.
    #[must_use]
    pub fn live_files(&self) -> Vec<Arc<dyn Live>> {
        let credentials = self.access.credentials.iter().map(|file| Arc::clone(file) as _);
        let of_upstreams =
            self.upstreams.iter().filter_map(|upstream| upstream.credential.as_ref());
        let values = of_upstreams.map(|credential| Arc::clone(&credential.value) as _);
        credentials.chain(values).collect()
    }

    /// Takes over what follows the files of `running`, which are the same: nobody follows those that were opened
    /// for this configuration.
    pub(crate) fn keep_files(&mut self, running: &Config) {
        self.access.clone_from(&running.access);
        for upstream in &mut self.upstreams {
            let same = running.upstreams.iter().find(|other| other.name == upstream.name);
            upstream.credential = same.and_then(|other| other.credential.clone());
        }
    }
}

/// `[listen]`
#[derive(Clone, Debug)]
pub struct Listen {
    /// The proxy listener; default `127.0.0.1:8080`.
    pub proxy: SocketAddr,
    /// The lease listener; default `127.0.0.1:8081`.
    pub leases: SocketAddr,
    /// The admin listener; default `127.0.0.1:9090`.
    pub admin: SocketAddr,
    /// Threads that serve the proxy listener; default: one per core this process may run on.
    pub workers: usize,
    /// TLS of the proxy listener; default: plain text.
    pub proxy_tls: Option<ServerFiles>,
    /// TLS of the lease listener.
    pub leases_tls: Option<ServerFiles>,
    /// TLS of the admin listener.
    pub admin_tls: Option<ServerFiles>,
    /// Who connects to the proxy listener with a PROXY protocol header; default nobody.
    pub proxy_protocol_from: Vec<IpNet>,
    /// Whose word about the client is passed on; default nobody's.
    pub trusted_proxies: Vec<IpNet>,
    /// What upstreams are told about the client; default nothing.
    pub forwarded: Forwarded,
}

/// What upstreams are told about the client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// Nothing; what a trusted proxy said is passed on.
    None,
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// What an upstream is spoken to with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: over TLS by ALPN, else by prior knowledge.
    Http2,
}

/// `[access]`
#[derive(Clone, Debug)]
pub struct Access {
    /// Who is known; `None`: everybody may everything, and the listeners are on loopback.
    pub credentials: Option<Arc<CredentialsFile>>,
    /// Whether `/metrics` needs no credential where there are any; default no.
    pub open_metrics: bool,
}

/// `[store]`
#[derive(Clone, Debug)]
pub enum Store {
    /// `sqlite:PATH`; default `sqlite:fencegate.db`.
    Sqlite(PathBuf),
    /// `postgres://…`, with what else is said of it.
    Postgres(PostgresSettings),
}

/// `[[upstream]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its name in routes and metrics.
    pub name: String,
    /// `host:port` of its URL, always with the port; an IPv6 host stands in brackets.
    pub authority: String,
    /// TLS, if its URL is `https://`.
    pub tls: Option<ClientFiles>,
    /// Which HTTP; default HTTP/1.1.
    pub protocol: Protocol,
    /// From sending to the final response head; default 30 s.
    pub timeout: Duration,
    /// After which an in-doubt request can no longer take effect; default 30 s.
    pub settle: Duration,
    /// How long connecting may take; default 5 s.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept; default 4 s.
    pub idle: Duration,
    /// Connections in use at a time, per thread of the proxy listener; default 1,024.
    pub connections: usize,
    /// Requests that wait for one of them, per thread; default 1,024.
    pub waiting: usize,
    /// What the gateway proves itself with; default nothing.
    pub credential: Option<UpstreamCredential>,
}

/// `[[route]]`
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name in logs and metrics.
    pub name: String,
    /// The pattern, in the syntax of `matchit`: `/accounts/{account}/{*rest}`. `/{*rest}` means every
    /// path, `/` as well.
    pub path: String,
    /// The template of the resource's name; default `{path}`. Its placeholders are `{path}`, the
    /// normalised path, and parameters of the pattern; there are no escapes.
    pub resource: String,
    /// Index into [`Config::upstreams`].
    pub upstream: usize,
    /// Which methods need a token.
    pub fenced: Fenced,
    /// Whether refusals are answered or only counted.
    pub mode: Mode,
    /// Whether the coordinator is asked about a new token.
    pub tokens: Tokens,
    /// Whether paths that differ only in case are one.
    pub case: Case,
    /// How long older writes in flight may finish before they are cut; default 10 s.
    pub drain: Duration,
    /// How long a newer write waits for older ones; default 60 s.
    pub wait: Duration,
    /// Bodies up to this size are read before admission; default 64 KiB.
    pub buffer_bytes: usize,
    /// Larger bodies are refused; default 64 MiB.
    pub body_bytes: u64,
    /// Requests under way at a time, of all threads together; default: no limit of its own.
    pub concurrency: Option<usize>,
    /// Requests that are let in; default: no limit.
    pub rate: Option<Rate>,
}

/// So many requests in a span of time. Who sent none for that time may send all of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Not zero.
    pub count: u32,
    /// One second or one minute.
    pub per: Duration,
}

/// Which methods of a route are fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// Every method but GET, HEAD and OPTIONS (the default).
    Writes,
    /// Exactly these, upper case. Empty: the route is not fenced at all.
    Only(Vec<String>),
}

/// What becomes of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is answered.
    Enforce,
    /// It is counted and logged, and the request is forwarded all the same.
    Observe,
}

/// Where a route's tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// From the coordinator, which confirms each new one.
    Held,
    /// From elsewhere: any higher token is taken.
    Ordered,
}

/// What upper and lower case in a path mean to a route's upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Paths that differ in case are different (the default).
    Exact,
    /// They are the same: the route takes its path in any case, and the resource is spelled in lower case.
    Ignore,
}

/// `[limits]`
#[derive(Clone, Debug)]
pub struct Limits {
    /// A request's head, in bytes; default 64 KiB.
    pub head_bytes: usize,
    /// A request's header fields; default 100.
    pub head_fields: usize,
    /// How long a head may take to arrive; default 10 s.
    pub head_timeout: Duration,
    /// How long a body may take to arrive before admission, and how long a streamed one may pause;
    /// default 30 s.
    pub body_timeout: Duration,
    /// How long a client connection may rest between two requests; default 75 s.
    pub idle_timeout: Duration,
    /// Requests of one client connection, after which it is closed; default 100,000.
    pub keep_alive_requests: usize,
    /// The age of a client connection from which on it is closed after a request; default 1 h.
    pub keep_alive_age: Duration,
    /// Requests at the same time on one HTTP/2 connection; default 100.
    pub streams: u32,
    /// HTTP/2: requests of one connection that its client may reset before they are answered, less those that were
    /// answered, before the connection is closed; default 100.
    pub h2_resets: usize,
    /// How long a PROXY protocol header and a TLS handshake may take together; default 10 s.
    pub handshake_timeout: Duration,
    /// Client connections in all; default 10,000.
    pub connections: usize,
    /// Connections of one client address; default 1,000.
    pub client_connections: usize,
    /// Requests of one client under way at a time; default: no limit.
    pub client_concurrency: Option<usize>,
    /// Requests of one client that are let in; default: no limit.
    pub client_rate: Option<Rate>,
    /// Writes that wait on one resource (for a raise or a drain); default 1,000.
    pub waiters: usize,
    /// Resources kept in memory; idle ones beyond it give their grants back. Default 200,000.
    pub cells: usize,
    /// A resource without writes for this long gives its grant back; default 10 min.
    pub cell_idle: Duration,
    /// What bounds the clients of the lease and admin listeners.
    pub api: ApiLimits,
}

/// The limits of the lease and admin listeners.
#[derive(Clone, Copy, Debug)]
pub struct ApiLimits {
    /// Connections of each listener; default 1,024.
    pub connections: usize,
    /// Connections of one client address to each listener: that of the proxy listener.
    pub client_connections: usize,
    /// A request's body, in bytes; default 16 KiB.
    pub body_bytes: usize,
    /// How long a TLS handshake may take: as on the proxy listener.
    pub handshake_timeout: Duration,
    /// How long a head, a body or a part of an answer may take; default 10 s.
    pub timeout: Duration,
    /// Acquisitions of leases that wait, in all; default 768.
    pub lease_waiters: usize,
    /// Acquisitions that wait for the lease of one resource; default 500.
    pub resource_lease_waiters: usize,
}

/// `[shutdown]`
#[derive(Clone, Debug)]
pub struct Shutdown {
    /// Between turning unready and closing the listener; default 0 s.
    pub unready: Duration,
    /// How long requests in flight may take after that; default 30 s.
    pub grace: Duration,
}

/// `[telemetry]`
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// The collector of OpenTelemetry, as `http://HOST:PORT`; default none.
    pub otlp: Option<String>,
    /// What this gateway is called there; default `fencegate`.
    pub service: String,
}

/// `[metrics]`
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Whose tokens are exported, at most 100; default none.
    pub resources: Vec<Resource>,
}
