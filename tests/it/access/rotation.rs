//! Credentials that change while the gateway runs.

use std::fs;

use super::{Guarded, entry, hash_of, root, token_of};
use crate::support::downstream::Downstream;
use crate::support::wait_until;

const READS: &str = "may = [\"lease.read\"]\nresources = [\"*\"]";

fn status(guarded: &Guarded, name: &str) -> u16 {
    guarded.leases(name, "GET", "/v1/leases", "").status
}

#[test]
fn tokens_come_and_go_without_a_restart() {
    let api = Downstream::start();
    let guarded = Guarded::start(api.address, &entry("old", READS), "");
    assert_eq!((status(&guarded, "old"), status(&guarded, "new")), (200, 401));
    // For a while both are known, under one name.
    let both = entry("old", READS).replace(
        &format!("\"{}\"", hash_of("old")),
        &format!("[\"{}\", \"{}\"]", hash_of("old"), hash_of("new")),
    );
    fs::write(guarded.credentials_file(), &both).unwrap();
    wait_until("the new one is known", || status(&guarded, "new") == 200);
    assert_eq!(status(&guarded, "old"), 200);
    fs::write(guarded.credentials_file(), entry("new", READS)).unwrap();
    wait_until("the old one is not known any more", || status(&guarded, "old") == 401);
    assert_eq!(status(&guarded, "new"), 200);
}

#[test]
fn a_bad_file_leaves_the_old_credentials_and_says_so() {
    let api = Downstream::start();
    let guarded = Guarded::start(api.address, &root(), "");
    let told = |words: &str| {
        guarded.gateway.log().iter().any(|line| {
            line["level"] == "ERROR"
                && line["mistakes"].as_str().is_some_and(|told| told.contains(words))
        })
    };
    fs::write(guarded.credentials_file(), format!("{}\n{}", root(), token_of("ann"))).unwrap();
    wait_until("the mistake is told of", || told("this is not TOML"));
    assert_eq!(status(&guarded, "root"), 200);
    fs::remove_file(guarded.credentials_file()).unwrap();
    wait_until("that it is gone is told of", || told("cannot be read"));
    assert_eq!(status(&guarded, "root"), 200);
    assert!(!guarded.gateway.log_text().contains(&token_of("ann")));
    fs::write(guarded.credentials_file(), entry("ann", READS)).unwrap();
    wait_until("a good one is taken", || status(&guarded, "ann") == 200);
    assert_eq!(status(&guarded, "root"), 401);
}
