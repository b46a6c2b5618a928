//! `docs/metrics.md` against scrapes of real gateways.

use fencegate::problem::Code;

use super::*;
use crate::servers::etcd::Etcd;
use crate::servers::postgres::Postgres;
use crate::support::certificates::{Authority, Pair};
use crate::support::downstream::Downstream;
use crate::support::wait_until;

const PAGE: &str = include_str!("../../../docs/metrics.md");

/// Name, type, labels, meaning.
fn rows() -> Vec<Vec<&'static str>> {
    let rows = PAGE
        .lines()
        .filter(|line| line.starts_with("| `fencegate_") || line.starts_with("| `process_"));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Compares a scrape with the rows whose meaning does not begin or end with one of `without`.
#[track_caller]
fn assert_is_the_page(gateway: &Gateway, without: &[&str]) -> Scrape {
    let is_meant = |row: &&Vec<&str>| !without.iter().any(|text| row[3].contains(text));
    let rows = rows();
    let rows: Vec<_> = rows.iter().filter(is_meant).collect();
    let documented: BTreeMap<String, String> =
        rows.iter().map(|row| (row[0].replace('`', ""), row[1].to_owned())).collect();
    wait_until("leases were counted once", || scrape(gateway).types.len() >= documented.len());
    let scrape = scrape(gateway);
    assert_eq!(documented, scrape.types);
    for row in rows {
        let labels = row[2].replace('`', "");
        let labels: BTreeSet<String> =
            labels.split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        let name = row[0].replace('`', "");
        assert_eq!(labels, scrape.labels(&name), "{row:?}");
        assert!(!row[3].is_empty(), "{row:?} says what it means");
        assert!(scrape.text.contains(&format!("# HELP {name} ")), "{name} says what it means");
    }
    scrape
}

#[test]
fn every_metric_of_the_page_is_there_from_the_start_and_no_other() {
    let api = Downstream::start();
    let ca = Authority::new();
    let Pair { cert, key } = ca.sign("gateway");
    let secured = format!(
        "[[upstream]]\nname = \"secured\"\nurl = \"https://127.0.0.1:9\"\nca_file = {:?}\n\
         cert_file = {cert:?}\nkey_file = {key:?}\n",
        ca.ca()
    );
    let gateway = Gateway::with_config(&format!(
        "{secured}[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\n\
         [[route]]\nname = \"held\"\npath = \"/held/{{*rest}}\"\nupstream = \"api\"\n\
         [[route]]\nname = \"watched\"\npath = \"/watched/{{*rest}}\"\nmode = \"observe\"\n\
         upstream = \"api\"\n\
         [metrics]\nresources = [\"/held/x\"]\n",
        api.address
    ));

    let scrape = assert_is_the_page(&gateway, &["Only with PostgreSQL", "Only with etcd"]);

    for (series, value) in &scrape.series {
        let name = series.split('{').next().unwrap_or_default();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let kind = scrape.types.get(name).or_else(|| scrape.types.get(family?));
        let counts = kind.is_some_and(|kind| kind != "gauge");
        // The store was opened, and looked at for what earlier runs left; the process has run.
        let is_begun = series.starts_with("fencegate_store_") || series.starts_with("process_");
        assert!(!counts || *value == 0.0 || is_begun, "{series} {value}");
    }
    for route in ["held", "watched", "none"] {
        for code in Code::ALL.iter().filter(|code| code.is_of_the_proxy()) {
            let labels = format!("{{code=\"{}\",route=\"{route}\"}}", code.as_str());
            scrape.value(&format!("fencegate_rejections_total{labels}"));
        }
    }
    let watched = "mode=\"observe\",route=\"watched\",tokens=\"held\",upstream=\"api\"";
    assert!(scrape.value(&format!("fencegate_route_info{{{watched}}}")) > 0.0);
}

#[test]
fn a_gateway_on_postgresql_and_etcd_has_those_of_the_page_as_well() {
    let (api, server, etcd) = (Downstream::start(), Postgres::start(), Etcd::single());
    let store = format!("url = \"{}\"", server.url());
    let coordinator = format!("etcd://127.0.0.1:9,{}", etcd.endpoints().join(","));
    let mut gateway = Gateway::one_of_several_for_holders(api.address, &store, &coordinator);
    gateway.start();
    let token = gateway.acquire("/x", "a", 60_000);
    assert_eq!(gateway.put("/x", token, "x").status, 200);

    let without = ["Not with etcd", "Only for `metrics.resources`", "Only where"];
    let scrape = assert_is_the_page(&gateway, &without);

    let nobody = "fencegate_etcd_failovers_total{endpoint=\"http://127.0.0.1:9\"}";
    assert!(scrape.value(nobody) >= 1.0, "nobody listens there");
    let connects = "fencegate_postgres_connects_total{pool=\"store\"}";
    assert!(scrape.value(connects) >= 1.0);
    let of_state = |state| {
        let labels = format!("pool=\"store\",state=\"{state}\"");
        scrape.value(&format!("fencegate_postgres_connections{{{labels}}}"))
    };
    assert!(of_state("idle") + of_state("busy") >= 1.0);
    let left = scrape.value("fencegate_instance_lease_remaining_seconds");
    assert!(left > 0.0 && left < 60.0, "{left}");
}
