//! What of a new configuration a running gateway takes over.

use super::{Given, SMALL, assert_lines};
use crate::config::keys::KEYS;

const PAGE: &str = include_str!("../../../docs/configuration.md");

fn needs_restart(new: &str) -> Vec<String> {
    let (running, new) = (Given::file(SMALL), Given::file(new));
    let lines = new.loaded().needs_restart(&running.loaded());
    let directory = new.directory.as_ref().unwrap().path().display().to_string() + "/";
    lines.into_iter().map(|line| line.replace(&directory, "")).collect()
}

#[test]
fn what_only_a_restart_changes_is_named_with_its_place() {
    let lines = needs_restart(&format!(
        "[listen]\nproxy = \"127.0.0.1:81\"\nadmin = \"127.0.0.1:9090\"\n[store]\nurl = \"sqlite:x.db\"\n{SMALL}"
    ));
    let expected = [("fencegate.toml:2", "listen.proxy: "), ("fencegate.toml:5", "store.url: ")];
    assert_lines(&lines, &expected);
}

#[test]
fn routes_upstreams_and_limits_need_none() {
    let changed = format!(
        "[limits]\nconnections = 7\n[shutdown]\ngrace = \"1s\"\n{SMALL}fenced = [\"PUT\"]\n\
         [[upstream]]\nname = \"b\"\nurl = \"http://127.0.0.1:1\"\nsettle = \"1s\"\n"
    );
    let changed = changed.replace("[[upstream]]\nurl", "[[upstream]]\nname = \"a\"\nurl");
    let changed = changed.replace("path = ", "upstream = \"a\"\npath = ");
    assert_lines(&needs_restart(&changed), &[]);
}

#[test]
fn an_upstream_in_front_of_others_changes_none_of_them() {
    let tls = |settings: &str| {
        format!(
            "[[upstream]]\nname = \"t\"\nurl = \"https://127.0.0.1:1\"\nserver_name = \"a\"\n{settings}"
        )
    };
    let route = "[[route]]\nname = \"r\"\nupstream = \"t\"\npath = \"/{*rest}\"\n";
    let running = Given::file(&format!("{}{route}", tls(""))).loaded();
    let other = "[[upstream]]\nname = \"n\"\nurl = \"http://127.0.0.1:2\"\n";
    let in_front = Given::file(&format!("{other}{}{route}", tls(""))).loaded();
    assert_lines(&in_front.needs_restart(&running), &[]);
    let changed = Given::file(&format!("{other}{}{route}", tls("").replace("\"a\"", "\"b\"")));
    let lines = changed.loaded().needs_restart(&running);
    assert!(lines.len() == 1 && lines[0].contains("upstream.server_name"), "{lines:?}");
}

#[test]
fn the_page_names_the_keys_that_need_a_restart() {
    let fixed: Vec<_> =
        KEYS.iter().filter(|key| !key.can_change()).map(|key| format!("`{key}`")).collect();
    let line = PAGE.lines().find_map(|line| line.strip_prefix("Only a restart changes "));
    let named: Vec<_> =
        line.expect("the line is there").trim_end_matches('.').split(", ").collect();
    assert_eq!(named, fixed);
}
