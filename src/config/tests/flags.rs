//! The flags of `serve`.

use clap::Parser;

use super::{Given, SMALL, assert_lines};
use crate::config::{Fenced, ServeFlags, load};

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    flags: ServeFlags,
}

fn parsed(arguments: &[&str]) -> ServeFlags {
    CommandLine::parse_from([&["fencegate"], arguments].concat()).flags
}

#[test]
fn an_upstream_alone_is_enough() {
    let flags = parsed(&["--upstream", "http://127.0.0.1:9000"]);
    let config = load(&flags.sources([])).unwrap().config;
    assert_eq!(config.listen.proxy.to_string(), "127.0.0.1:8080");
    let [upstream] = &config.upstreams[..] else { panic!("{:?}", config.upstreams) };
    let [route] = &config.routes[..] else { panic!("{:?}", config.routes) };
    assert_eq!(
        (upstream.name.as_str(), upstream.authority.as_str()),
        ("default", "127.0.0.1:9000")
    );
    assert_eq!((route.name.as_str(), route.path.as_str()), ("default", "/{*rest}"));
    assert_eq!((route.resource.as_str(), &route.fenced), ("{path}", &Fenced::Writes));
}

#[test]
fn every_flag_wins_over_the_environment() {
    let flags = parsed(&[
        "--upstream=http://127.0.0.1:9000",
        "--settle=1s",
        "--timeout=2s",
        "--resource=all",
        "--fenced=PUT,GET",
        "--listen=127.0.0.1:1",
        "--leases=127.0.0.1:2",
        "--admin=127.0.0.1:3",
        "--store=sqlite:a.db",
    ]);
    let environment = [
        ("FENCEGATE_UPSTREAM__0__URL", "http://127.0.0.1:1"),
        ("FENCEGATE_UPSTREAM__0__SETTLE", "9s"),
        ("FENCEGATE_ROUTE__0__FENCED", "PATCH"),
        ("FENCEGATE_STORE__URL", "sqlite:b.db"),
    ];
    let environment = environment.map(|(name, value)| (name.into(), value.into()));
    let config = load(&flags.sources(environment)).unwrap().config;
    let listen = &config.listen;
    assert_eq!([listen.proxy.port(), listen.leases.port(), listen.admin.port()], [1, 2, 3]);
    let upstream = &config.upstreams[0];
    assert_eq!(upstream.authority, "127.0.0.1:9000");
    assert_eq!((upstream.settle.as_secs(), upstream.timeout.as_secs()), (1, 2));
    assert_eq!(config.routes[0].resource, "all");
    assert_eq!(config.routes[0].fenced, Fenced::Only(vec!["PUT".into(), "GET".into()]));
    assert_eq!(format!("{:?}", config.store), "Sqlite(\"a.db\")");
}

#[test]
fn a_flag_about_an_upstream_or_route_does_not_bend_those_of_a_file() {
    let given = Given::file(SMALL)
        .flag("--upstream", "upstream.0.url", "http://127.0.0.1:1")
        .flag("--fenced", "route.0.fenced", "PUT")
        .flag("--listen", "listen.proxy", "127.0.0.1:1");
    let advice = "has a [[upstream]] of its own: set \"url\" there, or leave the flag out";
    assert_lines(
        &given.mistakes(),
        &[("--fenced", "fencegate.toml:4 has a [[route]] of its own"), ("--upstream", advice)],
    );
}

#[test]
fn a_file_without_upstreams_goes_with_an_upstream_flag() {
    let config = Given::file("[limits]\ncells = 5\n")
        .flag("--upstream", "upstream.0.url", "http://127.0.0.1:1")
        .loaded()
        .config;
    assert_eq!((config.limits.cells, config.routes.len()), (5, 1));
}
