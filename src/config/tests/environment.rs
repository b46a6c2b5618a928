//! The environment, and values from files that it names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::{Given, SMALL, assert_lines};
use crate::config::{Fenced, Store};

#[test]
fn a_variable_wins_over_the_file() {
    let text = format!("{SMALL}fenced = ['PUT']\n[listen]\nproxy = '127.0.0.1:1'\n");
    let loaded = Given::file(&text)
        .variable("FENCEGATE_LISTEN__PROXY", "127.0.0.1:2")
        .variable("FENCEGATE_ROUTE__0__FENCED", "POST, PATCH,DELETE")
        .variable("FENCEGATE_UPSTREAM__0__SETTLE", "7s")
        .variable("FENCEGATE_LOG", "debug")
        .variable("PATH", "/bin")
        .loaded();
    assert_eq!(loaded.config.listen.proxy.port(), 2);
    assert_eq!(loaded.config.upstreams[0].settle.as_secs(), 7);
    let methods = ["POST", "PATCH", "DELETE"].map(str::to_owned).to_vec();
    assert_eq!(loaded.config.routes[0].fenced, Fenced::Only(methods));
}

#[test]
fn the_environment_alone_is_enough() {
    let given = Given::nothing().variable("FENCEGATE_UPSTREAM__0__URL", "http://127.0.0.1:9000");
    let config = given.loaded().config;
    assert_eq!(config.upstreams[0].name, "default");
    assert_eq!(config.routes[0].path, "/{*rest}");
    let given = given
        .variable("FENCEGATE_ROUTE__0__NAME", "a")
        .variable("FENCEGATE_ROUTE__0__PATH", "/a")
        .variable("FENCEGATE_ROUTE__1__NAME", "b")
        .variable("FENCEGATE_ROUTE__1__PATH", "/b")
        .variable("FENCEGATE_ROUTE__1__FENCED", "[]");
    let config = given.loaded().config;
    assert_eq!(config.routes[1].path, "/b");
    assert_eq!(config.routes[1].fenced, Fenced::Only(Vec::new()));
}

#[test]
fn unknown_variables_come_with_what_was_meant() {
    let given = Given::file(SMALL)
        .variable("FENCEGATE_COFNIG", "x")
        .variable("FENCEGATE_ROUTE_0_PATH", "/a")
        .variable("FENCEGATE_ROUTE__00__PATH", "/a")
        .variable("FENCEGATE_STORE__url", "hunter2")
        .variable("FENCEGATE_WHATEVER_THIS_IS", "x");
    assert_lines(
        &given.mistakes(),
        &[
            ("FENCEGATE_COFNIG", "did you mean FENCEGATE_CONFIG?"),
            ("FENCEGATE_ROUTE_0_PATH", "did you mean FENCEGATE_ROUTE__0__PATH?"),
            ("FENCEGATE_ROUTE__00__PATH", "did you mean FENCEGATE_ROUTE__0__PATH?"),
            ("FENCEGATE_STORE__url", "did you mean FENCEGATE_STORE__URL?"),
            ("FENCEGATE_WHATEVER_THIS_IS", "keys are named like FENCEGATE_STORE__URL"),
        ],
    );
}

#[test]
fn variables_of_kubernetes_services_are_passed_over() {
    let mut given = Given::file(SMALL);
    for name in [
        "FENCEGATE_SERVICE_HOST",
        "FENCEGATE_SERVICE_PORT",
        "FENCEGATE_SERVICE_PORT_PROXY",
        "FENCEGATE_PORT",
        "FENCEGATE_PORT_8080_TCP",
        "FENCEGATE_PORT_8080_TCP_ADDR",
        "FENCEGATE_LEASES_PORT_8081_TCP_PORT",
    ] {
        given = given.variable(name, "tcp://10.0.0.1:8080");
    }
    given.loaded();
    assert_lines(
        &Given::file(SMALL).variable("FENCEGATE_LISTEN_PORT", "80").mistakes(),
        &[("FENCEGATE_LISTEN_PORT", "unknown variable")],
    );
}

#[test]
fn routes_are_numbered_without_gaps() {
    let given = Given::file(SMALL).variable("FENCEGATE_ROUTE__2__NAME", "b");
    let lines = given.mistakes();
    let gap = "FENCEGATE_ROUTE__2__NAME: there is no route 1 before route 2: number them from 0";
    assert!(lines.iter().any(|line| line.starts_with(gap)), "{lines:#?}");
}

#[test]
fn an_empty_or_unreadable_value_is_a_mistake() {
    let mut environment = BTreeMap::new();
    environment.insert("FENCEGATE_CONFIG".into(), OsString::new());
    environment.insert("FENCEGATE_ROUTE__0__FENCED".into(), OsString::new());
    environment.insert("FENCEGATE_ROUTE__0__NAME".into(), OsString::from_vec(vec![0xff]));
    environment.insert("FENCEGATE_UPSTREAM__0__URL".into(), "http://127.0.0.1".into());
    assert_lines(
        &Given::nothing().environment(environment).mistakes(),
        &[
            ("FENCEGATE_CONFIG", "is set, but empty"),
            ("FENCEGATE_ROUTE__0__FENCED", "is set, but empty"),
            ("FENCEGATE_ROUTE__0__NAME", "is not UTF-8 text"),
        ],
    );
}

#[test]
fn the_file_can_be_named_by_a_variable() {
    let mut given = Given::file("[listen]\nworkers = 0\n");
    let path = given.sources.file.take().unwrap();
    let given = given.variable("FENCEGATE_CONFIG", path.to_str().unwrap()).flag(
        "--upstream",
        "upstream.0.url",
        "http://127.0.0.1:9000",
    );
    assert_lines(&given.mistakes(), &[("fencegate.toml:2", "listen.workers")]);
}

#[test]
fn a_secret_is_read_from_a_file_and_never_shown() {
    let given = Given::file(SMALL);
    let secret = given.directory.as_ref().unwrap().path().join("store-url");
    std::fs::write(&secret, "sqlite:kept-secret.db\n").unwrap();
    let given = given.variable("FENCEGATE_STORE__URL_FILE", secret.to_str().unwrap());
    let loaded = given.loaded();
    let Store::Sqlite(path) = &loaded.config.store else { panic!("another store") };
    assert_eq!(path.to_str(), Some("kept-secret.db"));
    let printed = loaded.to_toml();
    assert!(!printed.contains("kept-secret") && printed.contains("url_file = "), "{printed}");

    std::fs::write(&secret, "mysql://user:hunter2@db/fences").unwrap();
    let lines = given.mistakes();
    assert_lines(&lines, &[("FENCEGATE_STORE__URL_FILE", "store.url: expected sqlite:PATH or")]);
    assert!(!lines[0].contains("hunter2"), "{lines:?}");

    // Somebody put the URL where the file's name belongs.
    let lines = Given::file(SMALL)
        .variable("FENCEGATE_STORE__URL_FILE", "postgres://user:hunter2@db/fences")
        .mistakes();
    assert_lines(&lines, &[("FENCEGATE_STORE__URL_FILE", "\"postgres://***@db/fences\" cannot")]);

    // The later layer wins; in one layer nobody knows which is meant.
    let both = given.flag("--store", "store.url", "sqlite:flag.db");
    let Store::Sqlite(path) = both.loaded().config.store else { panic!("another store") };
    assert_eq!(path.to_str(), Some("flag.db"));
    let text = format!("{SMALL}[store]\nurl = 'sqlite:a.db'\nurl_file = 'absent'\n");
    assert_lines(
        &Given::file(&text).mistakes(),
        &[("fencegate.toml:8", "store.url is set too (fencegate.toml:7); give one")],
    );
    assert_lines(
        &Given::file(&text.replace("url = 'sqlite:a.db'\n", "")).mistakes(),
        &[("fencegate.toml:7", "store.url_file: \"absent\" cannot be read: No such file")],
    );
}

#[test]
fn what_is_logged_is_checked_with_everything_else() {
    for (value, words) in [("", "is set, but empty"), ("loud", "none of the levels off, error")] {
        let given = Given::file(SMALL)
            .variable("FENCEGATE_LOG", value)
            .variable("FENCEGATE_LISTEN__PROXY", "here");
        assert_lines(
            &given.mistakes(),
            &[("FENCEGATE_LISTEN__PROXY", "no IP address"), ("FENCEGATE_LOG", words)],
        );
    }
    let mut given = Given::file(SMALL).variable("FENCEGATE_LOG", "warn");
    assert_eq!(given.loaded().log.to_string(), "warn");
    given.sources.log = Some("debug".to_owned());
    assert_eq!(given.loaded().log.to_string(), "debug");
    given.sources.log = Some(String::new());
    assert_lines(&given.mistakes(), &[("--log", "none of the levels")]);
    assert_eq!(Given::file(SMALL).loaded().log.to_string(), "info");
}

const POSTGRES: &str = "[[upstream]]\nurl = \"http://127.0.0.1:9000\"\n\n\
                        [[route]]\npath = \"/{*rest}\"\n\
                        [coordinator]\nurl = \"etcd://127.0.0.1:2379\"\n";

#[test]
fn every_key_of_a_postgresql_store_changes_the_configuration() {
    let given = || Given::file(POSTGRES).variable("FENCEGATE_STORE__URL", "postgres://u@db/f");
    let plain = format!("{:?}", given().loaded().config.store);
    for (name, value) in [
        ("LISTEN_URL", "postgres://u@other/f"),
        ("CONNECTIONS", "77"),
        ("INSTANCE_TTL", "77s"),
        ("MIGRATE", "by_command"),
    ] {
        let other = given().variable(&format!("FENCEGATE_STORE__{name}"), value).loaded();
        assert_ne!(format!("{:?}", other.config.store), plain, "{name} changes nothing");
    }
}

#[test]
fn a_password_for_postgresql_comes_from_a_file_or_the_url_and_is_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "kept-secret\n").unwrap();
    let from_file = Given::file(POSTGRES)
        .variable("FENCEGATE_STORE__URL", "postgres://u@db/f")
        .variable("FENCEGATE_STORE__PASSWORD_FILE", &file.display().to_string());
    let in_url = Given::file(POSTGRES)
        .variable("FENCEGATE_STORE__URL", "postgres://u:kept-secret@db/f")
        .variable("FENCEGATE_STORE__LISTEN_URL", "postgres://u:kept-secret@db/f");
    for given in [from_file, in_url] {
        let loaded = given.loaded();
        let printed = format!("{} {loaded:?}", loaded.to_toml());
        assert!(!printed.contains("kept-secret"), "{printed}");
    }
}

#[test]
fn a_postgresql_store_does_not_go_with_the_embedded_coordinator() {
    let given = Given::file(SMALL).variable("FENCEGATE_STORE__URL", "postgres://u@db/f");
    let expected = [("FENCEGATE_STORE__URL", "the embedded coordinator needs store.url")];
    assert_lines(&given.mistakes(), &expected);
    let unknown = Given::file(POSTGRES)
        .variable("FENCEGATE_STORE__URL", "postgres://u@db/f?passwort=kept-secret");
    let mistakes = unknown.mistakes();
    assert_lines(&mistakes, &[("FENCEGATE_STORE__URL", "has an unknown parameter")]);
    assert!(!mistakes[0].contains("kept-secret"));
}

#[test]
fn what_only_postgresql_has_is_a_warning_with_sqlite() {
    let loaded = Given::file(SMALL).variable("FENCEGATE_STORE__CONNECTIONS", "9").loaded();
    assert!(loaded.warnings.iter().any(|line| line.contains("store.connections: has no effect")));
}
