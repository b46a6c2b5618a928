//! Credentials: the gateway's clients', and its own.

use std::path::PathBuf;

use super::{Given, SMALL, assert_lines};

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

#[test]
fn credentials_are_read_at_the_start_and_all_that_is_wrong_is_told() {
    let files = Files::new();
    let good = format!("[[credential]]\nname = 'w'\nsha256 = '{HASH}'\nmay = 'admin.metrics'\n");
    let variable = "FENCEGATE_ACCESS__CREDENTIALS";
    let config = Given::file(SMALL).variable(variable, &files.write("good", &good)).loaded().config;
    assert!(config.access.credentials.is_some() && !config.access.open_metrics);
    assert!(!format!("{config:?}").contains(HASH));

    let bad = files.write("bad", "[[credential]]\nname = 'w'\nsha256 = 'x'\nmay = 'fly'\n");
    assert_lines(
        &Given::file(SMALL).variable(variable, &bad).mistakes(),
        &[(variable, "line 3: sha256 is 64 hexadecimal digits")],
    );
    let missing = files.0.path().join("missing");
    assert_lines(
        &Given::file(SMALL).variable(variable, missing.to_str().unwrap()).mistakes(),
        &[(variable, "cannot be read")],
    );
}

#[test]
fn an_upstream_gets_a_field_from_a_file_that_is_never_shown() {
    let files = Files::new();
    let file = files.write("key", "s3cret-value\n");
    let with = |header: &str| {
        let text = SMALL.replace("\n\n", &format!("\ncredential_file = '{file}'\n{header}\n\n"));
        Given::file(&text)
    };
    let loaded = with("credential_header = 'X-Api-Key'").loaded();
    let credential = loaded.config.upstreams[0].credential.as_ref().unwrap();
    assert_eq!(credential.header, "x-api-key");
    assert_eq!(credential.value.get(), "s3cret-value");
    assert_eq!(
        with("").loaded().config.upstreams[0].credential.as_ref().unwrap().header,
        "authorization"
    );
    for shown in [format!("{:?}", loaded.config), loaded.to_toml(), format!("{credential:?}")] {
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    assert!(!format!("{:?}", credential.value.get()).contains("s3cret"));
    for (header, words) in [
        ("credential_header = 'Host'", "another meaning"),
        ("credential_header = 'Fencing-Token'", "another meaning"),
        ("credential_header = 'a b'", "no name of a header field"),
    ] {
        assert_lines(&with(header).mistakes(), &[("fencegate.toml:4", words)]);
    }
    let alone = SMALL.replace("\n\n", "\ncredential_header = 'X-Api-Key'\n\n");
    assert_lines(
        &Given::file(&alone).mistakes(),
        &[("fencegate.toml:3", "upstream.credential_file is missing")],
    );
}

#[test]
fn what_no_field_can_hold_is_refused_without_showing_it() {
    let files = Files::new();
    for (text, words) in [
        ("", "is empty"),
        ("\n", "is empty"),
        ("s3cret\ns3cret\n", "is no value"),
        (" s3cret", "is no value"),
        ("s3crét", "is no value"),
        (&"s".repeat(8193), "is no value"),
    ] {
        let variable = "FENCEGATE_UPSTREAM__0__CREDENTIAL_FILE";
        let found = Given::file(SMALL).variable(variable, &files.write("key", text)).mistakes();
        assert_lines(&found, &[(variable, words)]);
        assert!(!found[0].contains("s3cr"), "{found:?}");
    }
}
