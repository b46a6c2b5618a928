//! The table of keys against the code and against `docs/configuration.md`.

use super::{Given, SMALL};
use crate::config::keys::{Absent, KEYS, Key, Kind, Section, Slot};

const PAGE: &str = include_str!("../../../docs/configuration.md");

/// The first four cells of a key's row; the fifth says what the key means.
fn row(key: &Key) -> [String; 4] {
    let absent = match key.absent {
        Absent::Default(value) => format!("`{value}`"),
        Absent::Means(says, _) => says.to_owned(),
        Absent::Mistake(_) => "required".to_owned(),
    };
    let variable = Slot { section: key.section, index: 0, name: key.name }.variable();
    [format!("`{key}`"), key.kind.label(), absent, format!("`{variable}`")]
}

#[test]
fn the_page_has_every_key_as_it_is_and_no_other() {
    let rows: Vec<Vec<&str>> = PAGE
        .lines()
        .filter(|line| line.starts_with("| `") && line.contains("`FENCEGATE_"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    for cells in &rows {
        assert!(cells.len() == 5 && !cells[4].is_empty(), "{cells:?} says what the key means");
    }
    let documented: Vec<_> = rows.iter().map(|cells| cells[..4].to_vec()).collect();
    assert_eq!(documented, KEYS.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn the_example_of_the_page_loads() {
    let example = PAGE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    Given::file(example.expect("the page begins with an example")).loaded();
}

/// A value that is not the default.
fn other_value(key: &Key) -> &'static str {
    match (key.section, key.name) {
        (Section::Listen, "workers") | (Section::Limits, "streams") => "77",
        (Section::Listen, "proxy_protocol_from" | "trusted_proxies") => "10.0.0.0/8",
        (Section::Listen, "forwarded") => "x-forwarded",
        (Section::Upstream, "protocol") => "http2",
        (Section::Listen, _) => "127.0.0.9:7",
        (Section::Store, "url") => "sqlite:other.db",
        (Section::Telemetry, "otlp") | (Section::Upstream, "url") => "http://127.0.0.1:7",
        (Section::Route, "path") => "/other",
        (Section::Route, "resource") => "other:{path}",
        (Section::Route, "fenced") => "GET",
        (Section::Route, "mode") => "observe",
        (Section::Route, "tokens") => "ordered",
        (Section::Route, "case") => "ignore",
        (Section::Access, "metrics") => "open",
        (_, "name") => "other",
        (Section::Limits, "api_connections") => "2000",
        _ => match key.kind {
            Kind::Size => "77777",
            Kind::Number => "77",
            Kind::Rate => "77/s",
            _ => "77s",
        },
    }
}

/// A key that nobody reads would be taken and mean nothing.
#[test]
fn every_key_changes_the_configuration() {
    let plain = format!("{:?}", Given::file(SMALL).loaded().config);
    // Those that have no effect yet or that need more than a value have tests of their own.
    let others = [
        "store.url_file",
        "route.upstream",
        "access.credentials",
        "upstream.credential_file",
        "upstream.credential_header",
    ];
    // What TLS is made of has to be there, and to fit together: see `super::tls`.
    let of_tls = |key: &Key| {
        let is_listed =
            ["_file", "_client_cert", "server_name"].iter().any(|end| key.name.ends_with(end));
        is_listed && matches!(key.section, Section::Listen | Section::Upstream)
    };
    let of_postgres = |key: &Key| key.section == Section::Store && key.name != "url";
    let is_other = |key: &Key| {
        let is_listed = others.contains(&key.to_string().as_str());
        key.section == Section::Coordinator || is_listed || of_postgres(key) || of_tls(key)
    };
    for key in KEYS.iter().filter(|key| !is_other(key)) {
        let variable = Slot { section: key.section, index: 0, name: key.name }.variable();
        let config = Given::file(SMALL).variable(&variable, other_value(key)).loaded().config;
        assert_ne!(format!("{config:?}"), plain, "{key} changes nothing");
    }
}
