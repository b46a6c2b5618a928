use super::{Given, SMALL, assert_lines};
use crate::config::Coordinator;
use crate::coordinator::etcd::{EtcdSettings, Layout};

fn given(lines: &str) -> Given {
    Given::file(&format!("[coordinator]\n{lines}\n{SMALL}"))
}

fn etcd(given: &Given) -> EtcdSettings {
    match given.loaded().config.coordinator {
        Coordinator::Etcd(settings) => settings,
        other => panic!("{other:?} is not etcd"),
    }
}

/// A file of a test, by its full name.
fn file(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn etcd_has_members_a_prefix_and_a_layout() {
    let plain = etcd(&given("url = \"etcd://a:1,[::1]:2,c\""));
    assert_eq!(plain.endpoints, ["a:1", "[::1]:2", "c:2379"]);
    assert_eq!((plain.prefix.as_str(), plain.layout), ("/fencegate/leases", Layout::Mutex));
    assert!(plain.user.is_none() && plain.tls.is_none());
    let other = etcd(&given("url = \"etcd://a\"\nprefix = \"/locks/\"\nlayout = \"key\""));
    assert_eq!((other.prefix.as_str(), other.layout), ("/locks", Layout::Key));
    assert!(given("url = \"etcd://a\"\nprefix = \"p\"").loaded().warnings.is_empty());
}

#[test]
fn secrets_come_from_files_and_do_not_show() {
    let directory = tempfile::tempdir().unwrap();
    let [password, ca, cert, key] = ["hunter1", "CA", "CERT", "hunter2"]
        .map(|text| file(&directory, text, &format!("{text}\n")));
    let lines = format!(
        "url = \"etcds://a\"\nusername = \"u\"\npassword_file = \"{password}\"\n\
         ca_file = \"{ca}\"\ncert_file = \"{cert}\"\nkey_file = \"{key}\""
    );
    let settings = etcd(&given(&lines));
    assert!(!format!("{settings:?}").contains("hunter"));
    assert_eq!(settings.user.unwrap().password, "hunter1");
    let tls = settings.tls.unwrap();
    assert_eq!((tls.ca.as_str(), tls.identity), ("CA", Some(("CERT".into(), "hunter2".into()))));
    assert!(!given(&lines).loaded().to_toml().contains("hunter1\n"));
}

#[test]
fn halves_and_files_that_are_not_there_are_mistakes() {
    let lines = given(
        "url = \"etcds://a\"\nusername = \"u\"\ncert_file = \"/nowhere/c\"\nlayout = \"mutx\"",
    )
    .mistakes();
    assert_lines(
        &lines,
        &[
            ("fencegate.toml:2", "coordinator.url: etcds:// needs coordinator.ca_file"),
            ("fencegate.toml:3", "coordinator.password_file is missing; give both or neither"),
            ("fencegate.toml:4", "\"/nowhere/c\" cannot be read"),
            ("fencegate.toml:4", "coordinator.key_file is missing; give both or neither"),
            ("fencegate.toml:5", "did you mean \"mutex\"?"),
        ],
    );
    let directory = tempfile::tempdir().unwrap();
    let ca = file(&directory, "ca", "CA");
    let lines = given(&format!("url = \"etcd://a\"\nca_file = \"{ca}\"")).mistakes();
    assert_lines(&lines, &[("fencegate.toml:3", "TLS needs coordinator.url = \"etcds://…\"")]);
}

#[test]
fn what_is_for_etcd_has_no_effect_on_the_embedded_coordinator() {
    let loaded = given("layout = \"key\"\nusername = \"u\"").mistakes();
    assert_lines(&loaded, &[("fencegate.toml:3", "coordinator.password_file is missing")]);
    let warnings = given("layout = \"key\"").loaded().warnings;
    assert!(warnings[0].contains("coordinator.layout: has no effect"), "{warnings:?}");
}

#[test]
fn a_postgresql_coordinator_takes_its_password_from_a_file_and_never_shows_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "top-secret\n").unwrap();
    let text = format!(
        "{SMALL}[coordinator]\nurl = 'postgres://me@db/leases'\npassword_file = '{}'\n\
         listen_url = 'none'\nprefix = '/x'\n",
        file.display()
    );
    let loaded = Given::file(&text).loaded();
    let Coordinator::Postgres(settings) = &loaded.config.coordinator else {
        panic!("{:?}", loaded.config.coordinator);
    };
    assert!(settings.listen.is_none());
    assert!(format!("{settings:?}").contains("***"), "{settings:?}");
    assert!(!format!("{loaded:?}{}", loaded.to_toml()).contains("top-secret"));
    assert!(loaded.warnings[0].contains("prefix: has no effect"), "{:?}", loaded.warnings);
}

#[test]
fn the_user_of_postgresql_is_in_its_url_and_its_password_in_a_file() {
    let mistakes = given("url = \"postgres://me@db/x\"\npassword_file = \"absent\"").mistakes();
    assert_lines(&mistakes, &[("fencegate.toml:3", "\"absent\" cannot be read")]);
    let warnings = given("url = \"postgres://me@db/x\"\nusername = \"u\"").loaded().warnings;
    assert!(warnings[0].contains("username: has no effect on a coordinator on PostgreSQL"));
}
