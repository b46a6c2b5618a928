//! The table of all keys.

use super::{Absent, Key, Kind, Section};

/// Every key, in the order in which they are documented and printed.
pub(in crate::config) const KEYS: &[Key] = {
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
