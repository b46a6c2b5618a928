//! Every key there is: its section, its kind and its default.
//!
//! This table is the only list of keys. The file and environment readers accept what is in it and
//! nothing else, defaults are read from it by the same parsers as values, and a test holds
//! `docs/configuration.md` against it.

use std::fmt;

/// A table of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Listen,
    Store,
    Coordinator,
    Upstream,
    Route,
    Limits,
    Shutdown,
    Metrics,
    Telemetry,
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Address,
    Url,
    File,
    Name,
    Pattern,
    Template,
    Text,
    Duration,
    Size,
    Number,
    Rate,
    Methods,
    Resources,
    Networks,
    Choice(&'static [&'static str]),
}

/// What holds where a key is not set.
#[derive(Clone, Copy, Debug)]
pub(super) enum Absent {
    /// This value.
    Default(&'static str),
    /// What the text says; the second text is an example of a value.
    Means(&'static str, &'static str),
    /// The key has to be set; the text is an example.
    Mistake(&'static str),
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) section: Section,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) absent: Absent,
}

/// A place for one value: a key and, in `[[upstream]]` and `[[route]]`, whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) section: Section,
    pub(super) index: usize,
    pub(super) name: &'static str,
}

/// Every key, in the order in which they are documented and printed.
pub(super) const KEYS: &[Key] = {
    use Absent::{Default, Means, Mistake};
    use Section as S;
    &[
        key(S::Listen, "proxy", Kind::Address, Default("127.0.0.1:8080")),
        key(S::Listen, "leases", Kind::Address, Default("127.0.0.1:8081")),
        key(S::Listen, "admin", Kind::Address, Default("127.0.0.1:9090")),
        key(S::Listen, "workers", Kind::Number, Means("one per core", "4")),
        key(S::Listen, "proxy_cert_file", Kind::File, Means("none", "/etc/fencegate/tls.crt")),
        key(S::Listen, "proxy_key_file", Kind::File, Means("none", "/etc/fencegate/tls.key")),
        key(S::Listen, "proxy_client_ca_file", Kind::File, Means("none", "/etc/fencegate/ca.pem")),
        key(S::Listen, "proxy_client_cert", CLIENT_CERT, Default("required")),
        key(S::Listen, "leases_cert_file", Kind::File, Means("none", "/etc/fencegate/tls.crt")),
        key(S::Listen, "leases_key_file", Kind::File, Means("none", "/etc/fencegate/tls.key")),
        key(S::Listen, "leases_client_ca_file", Kind::File, Means("none", "/etc/fencegate/ca.pem")),
        key(S::Listen, "leases_client_cert", CLIENT_CERT, Default("required")),
        key(S::Listen, "admin_cert_file", Kind::File, Means("none", "/etc/fencegate/tls.crt")),
        key(S::Listen, "admin_key_file", Kind::File, Means("none", "/etc/fencegate/tls.key")),
        key(S::Listen, "admin_client_ca_file", Kind::File, Means("none", "/etc/fencegate/ca.pem")),
        key(S::Listen, "admin_client_cert", CLIENT_CERT, Default("required")),
        key(
            S::Listen,
            "proxy_protocol_from",
            Kind::Networks,
            Means("none", "10.1.0.0/16, 192.0.2.7/32"),
        ),
        key(
            S::Listen,
            "trusted_proxies",
            Kind::Networks,
            Means("none", "10.1.0.0/16, 192.0.2.7/32"),
        ),
        key(S::Listen, "forwarded", FORWARDED, Default("none")),
        key(S::Store, "url", Kind::Url, Default("sqlite:fencegate.db")),
        key(S::Store, "url_file", Kind::File, Means("`url` holds", "/run/secrets/store-url")),
        key(S::Store, "password_file", Kind::File, Means("none", "/run/secrets/store-password")),
        key(
            S::Store,
            "listen_url",
            Kind::Url,
            Means("`url`", "postgres://fencegate@db:5432/fencegate"),
        ),
        key(S::Store, "connections", Kind::Number, Default("8")),
        key(S::Store, "instance_ttl", Kind::Duration, Default("10s")),
        key(S::Store, "migrate", Kind::Choice(&["at_start", "by_command"]), Default("at_start")),
        key(S::Coordinator, "url", Kind::Url, Default("embedded")),
        key(
            S::Coordinator,
            "prefix",
            Kind::Text,
            Means("`/fencegate/leases`", "/fencegate/leases"),
        ),
        key(S::Coordinator, "layout", Kind::Choice(&["mutex", "key"]), Means("`mutex`", "mutex")),
        key(S::Coordinator, "username", Kind::Text, Means("none", "fencegate")),
        key(S::Coordinator, "password_file", Kind::File, Means("none", "/run/secrets/leases")),
        key(S::Coordinator, "ca_file", Kind::File, Means("none", "/etc/etcd/ca.pem")),
        key(S::Coordinator, "cert_file", Kind::File, Means("none", "/etc/etcd/fencegate.pem")),
        key(S::Coordinator, "key_file", Kind::File, Means("none", "/etc/etcd/fencegate.key")),
        key(
            S::Coordinator,
            "listen_url",
            Kind::Url,
            Means("`url` holds", "postgres://fencegate@db:5432/fencegate"),
        ),
        key(S::Upstream, "name", Kind::Name, sole_name("ledger")),
        key(S::Upstream, "url", Kind::Url, Mistake("http://127.0.0.1:9000")),
        key(S::Upstream, "timeout", Kind::Duration, Default("30s")),
        key(S::Upstream, "settle", Kind::Duration, Default("30s")),
        key(S::Upstream, "connect_timeout", Kind::Duration, Default("5s")),
        key(S::Upstream, "idle", Kind::Duration, Default("4s")),
        key(S::Upstream, "connections", Kind::Number, Default("1024")),
        key(S::Upstream, "waiting", Kind::Number, Default("1024")),
        key(S::Upstream, "protocol", Kind::Choice(&["http1", "http2"]), Default("http1")),
        key(S::Upstream, "ca_file", Kind::File, Means("the system's", "/etc/fencegate/ca.pem")),
        key(
            S::Upstream,
            "server_name",
            Kind::Text,
            Means("the host of `url`", "ledger.example.internal"),
        ),
        key(S::Upstream, "cert_file", Kind::File, Means("none", "/etc/fencegate/client.crt")),
        key(S::Upstream, "key_file", Kind::File, Means("none", "/etc/fencegate/client.key")),
        key(S::Route, "name", Kind::Name, sole_name("accounts")),
        key(S::Route, "path", Kind::Pattern, Mistake("/accounts/{account}/{*rest}")),
        key(S::Route, "resource", Kind::Template, Default("{path}")),
        key(
            S::Route,
            "upstream",
            Kind::Name,
            Means("the upstream, if there is only one", "ledger"),
        ),
        key(
            S::Route,
            "fenced",
            Kind::Methods,
            Means("every method but GET, HEAD and OPTIONS", "POST, PUT, PATCH, DELETE"),
        ),
        key(S::Route, "mode", Kind::Choice(&["enforce", "observe"]), Default("enforce")),
        key(S::Route, "tokens", Kind::Choice(&["held", "ordered"]), Default("held")),
        key(S::Route, "case", Kind::Choice(&["exact", "ignore"]), Default("exact")),
        key(S::Route, "drain", Kind::Duration, Default("10s")),
        key(S::Route, "wait", Kind::Duration, Default("60s")),
        key(S::Route, "buffer", Kind::Size, Default("64KiB")),
        key(S::Route, "max_body", Kind::Size, Default("64MiB")),
        key(S::Route, "concurrency", Kind::Number, Means("no limit", "200")),
        key(S::Route, "rate", Kind::Rate, Means("no limit", "500/s")),
        key(S::Limits, "head_size", Kind::Size, Default("64KiB")),
        key(S::Limits, "head_fields", Kind::Number, Default("100")),
        key(S::Limits, "head_timeout", Kind::Duration, Default("10s")),
        key(S::Limits, "body_timeout", Kind::Duration, Default("30s")),
        key(S::Limits, "idle_timeout", Kind::Duration, Default("75s")),
        key(S::Limits, "keep_alive_requests", Kind::Number, Default("100000")),
        key(S::Limits, "keep_alive_age", Kind::Duration, Default("1h")),
        key(S::Limits, "streams", Kind::Number, Default("100")),
        key(S::Limits, "h2_resets", Kind::Number, Default("100")),
        key(S::Limits, "handshake_timeout", Kind::Duration, Default("10s")),
        key(S::Limits, "connections", Kind::Number, Default("10000")),
        key(S::Limits, "client_connections", Kind::Number, Default("1000")),
        key(S::Limits, "client_concurrency", Kind::Number, Means("no limit", "50")),
        key(S::Limits, "client_rate", Kind::Rate, Means("no limit", "100/s")),
        key(S::Limits, "waiters", Kind::Number, Default("1000")),
        key(S::Limits, "cells", Kind::Number, Default("200000")),
        key(S::Limits, "cell_idle", Kind::Duration, Default("10m")),
        key(S::Limits, "api_connections", Kind::Number, Default("1024")),
        key(S::Limits, "api_body_size", Kind::Size, Default("16KiB")),
        key(S::Limits, "api_timeout", Kind::Duration, Default("10s")),
        key(S::Limits, "lease_waiters", Kind::Number, Default("768")),
        key(S::Limits, "resource_lease_waiters", Kind::Number, Default("500")),
        key(S::Shutdown, "unready", Kind::Duration, Default("0s")),
        key(S::Shutdown, "grace", Kind::Duration, Default("30s")),
        key(S::Metrics, "resources", Kind::Resources, Means("none", "account:42, account:43")),
        key(S::Telemetry, "otlp", Kind::Url, Means("none", "http://127.0.0.1:4318")),
        key(S::Telemetry, "service", Kind::Text, Default("fencegate")),
    ]
};

const CLIENT_CERT: Kind = Kind::Choice(&["required", "optional"]);
const FORWARDED: Kind = Kind::Choice(&["none", "x-forwarded", "forwarded"]);

const fn sole_name(example: &'static str) -> Absent {
    Absent::Means("`default` if there is only one", example)
}

const fn key(section: Section, name: &'static str, kind: Kind, absent: Absent) -> Key {
    Key { section, name, kind, absent }
}

impl Section {
    /// Every section, in the order in which they are printed.
    pub(super) const ALL: [Section; 9] = [
        Section::Listen,
        Section::Store,
        Section::Coordinator,
        Section::Upstream,
        Section::Route,
        Section::Limits,
        Section::Shutdown,
        Section::Metrics,
        Section::Telemetry,
    ];

    pub(super) fn named(name: &str) -> Option<Section> {
        Section::ALL.into_iter().find(|section| section.name() == name)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Section::Listen => "listen",
            Section::Store => "store",
            Section::Coordinator => "coordinator",
            Section::Upstream => "upstream",
            Section::Route => "route",
            Section::Limits => "limits",
            Section::Shutdown => "shutdown",
            Section::Metrics => "metrics",
            Section::Telemetry => "telemetry",
        }
    }

    /// Whether the section is an array of tables.
    pub(super) const fn is_array(self) -> bool {
        matches!(self, Section::Upstream | Section::Route)
    }

    pub(super) fn keys(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(move |key| key.section == self)
    }
}

/// As its header stands in the file: `[listen]`, `[[route]]`.
impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_array() {
            write!(f, "[[{}]]", self.name())
        } else {
            write!(f, "[{}]", self.name())
        }
    }
}

impl Kind {
    /// What the documentation and mistakes call it.
    pub(super) fn label(self) -> String {
        match self {
            Kind::Address => "address".into(),
            Kind::Url => "URL".into(),
            Kind::File => "file name".into(),
            Kind::Name => "name".into(),
            Kind::Pattern => "path pattern".into(),
            Kind::Template => "template".into(),
            Kind::Text => "text".into(),
            Kind::Duration => "duration".into(),
            Kind::Size => "size".into(),
            Kind::Number => "number".into(),
            Kind::Rate => "rate".into(),
            Kind::Methods => "list of methods".into(),
            Kind::Resources => "list of resources".into(),
            Kind::Networks => "list of networks".into(),
            Kind::Choice(choices) => {
                choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(" or ")
            }
        }
    }
}

impl Key {
    /// Whether a reload can change it. A new key of an upstream or a route has to be thought about first: it must
    /// not change which resource a request writes to without [`crate::gateway`] seeing that.
    pub(super) fn can_change(&self) -> bool {
        match self.section {
            Section::Listen
            | Section::Store
            | Section::Coordinator
            | Section::Metrics
            | Section::Telemetry => false,
            // All listeners have it from the start.
            Section::Limits => self.name != "handshake_timeout",
            Section::Shutdown => true,
            Section::Upstream => matches!(
                self.name,
                "name"
                    | "url"
                    | "timeout"
                    | "settle"
                    | "connect_timeout"
                    | "idle"
                    | "connections"
                    | "waiting"
            ),
            Section::Route => matches!(
                self.name,
                "name"
                    | "path"
                    | "resource"
                    | "upstream"
                    | "fenced"
                    | "mode"
                    | "tokens"
                    | "drain"
                    | "wait"
                    | "buffer"
                    | "max_body"
                    | "concurrency"
                    | "rate"
            ),
        }
    }

    /// The key of this name in `section`.
    pub(super) fn find(section: Section, name: &str) -> Option<&'static Key> {
        section.keys().find(|key| key.name == name)
    }

    /// A value that would do, as it is typed into the file.
    pub(super) fn example(&self) -> String {
        let (Absent::Default(text) | Absent::Means(_, text) | Absent::Mistake(text)) = self.absent;
        match self.kind {
            Kind::Number => text.to_owned(),
            Kind::Methods | Kind::Resources | Kind::Networks => {
                format!("{:?}", text.split(", ").collect::<Vec<_>>())
            }
            _ => format!("{text:?}"),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.section.name(), self.name)
    }
}

/// More upstreams or routes than anybody has; an index is typed by hand.
const HIGHEST_INDEX: usize = 9_999;

impl Slot {
    /// Reads `["listen", "proxy"]` or `["route", "0", "path"]`.
    pub(super) fn parse(parts: &[&str]) -> Option<Slot> {
        let (section, index, name) = match *parts {
            [section, name] => (Section::named(section).filter(|s| !s.is_array())?, 0, name),
            [section, index, name] => {
                let section = Section::named(section).filter(|s| s.is_array())?;
                let number: usize = index.parse().ok().filter(|n| *n <= HIGHEST_INDEX)?;
                // "00" and "+1" would be second names of one place.
                (number.to_string() == index).then_some((section, number, name))?
            }
            _ => return None,
        };
        Key::find(section, name).map(|key| Slot { section, index, name: key.name })
    }

    /// The environment variable that sets it.
    pub(super) fn variable(self) -> String {
        let Slot { section, index, name } = self;
        let section = section.name();
        let path = if self.section.is_array() {
            format!("{section}__{index}__{name}")
        } else {
            format!("{section}__{name}")
        };
        format!("{PREFIX}{}", path.to_ascii_uppercase())
    }
}

/// What the names of all our environment variables begin with.
pub(super) const PREFIX: &str = "FENCEGATE_";
