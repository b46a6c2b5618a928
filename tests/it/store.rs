//! The store file in bad weather: what a person is told, and that nothing passes unrecorded.

use std::fs;
use std::path::Path;

use crate::support::command::{Ended, fencegate, run};
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::small_disk::SmallDisk;
use crate::support::store_file::StoreFile;

/// Tries to serve with the store at `path`, and expects to fail.
#[track_caller]
fn refused(path: &Path) -> Ended {
    let store = format!("sqlite:{}", path.display());
    let anywhere = "127.0.0.1:0";
    let ended = run(fencegate(
        path.parent().filter(|parent| parent.exists()).unwrap_or(Path::new("/")),
        &[
            "serve",
            "--upstream",
            "http://127.0.0.1:9",
            "--store",
            &store,
            "--listen",
            anywhere,
            "--leases",
            anywhere,
            "--admin",
            anywhere,
        ],
    ));
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(ended.stderr.contains(&path.display().to_string()), "{ended:?}");
    ended
}

#[track_caller]
fn says(ended: &Ended, words: &[&str]) {
    for words in words {
        assert!(ended.stderr.contains(words), "no {words:?} in {:?}", ended.stderr);
    }
}

fn ordered(api: &Downstream, store: &Path) -> Gateway {
    Gateway::with_store(
        Some(store.to_owned()),
        &format!(
            "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"200ms\"\n\
             [[route]]\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n",
            api.address
        ),
    )
}

#[test]
fn a_read_only_store_is_refused() {
    let api = Downstream::start();
    let disk = SmallDisk::mount("8m");
    let path = disk.path().join("fencegate.db");
    assert!(ordered(&api, &path).stop().success());
    disk.make_read_only();

    says(&refused(&path), &["cannot be written", "give this user write access"]);
    says(&refused(&disk.path().join("new.db")), &["cannot be opened or created"]);
}

#[test]
fn a_full_disk_at_the_start_is_told() {
    let disk = SmallDisk::mount("64k");
    disk.fill();
    says(&refused(&disk.path().join("fencegate.db")), &["is full", "make room"]);
}

#[test]
fn on_a_full_disk_raises_fail_closed_and_work_again_once_there_is_room() {
    let api = Downstream::start();
    let disk = SmallDisk::mount("2m");
    let mut gateway = ordered(&api, &disk.path().join("fencegate.db"));
    assert_eq!(gateway.put("/granted", 1, "before").status, 200);
    disk.fill();

    // What is left of the last page may take a few more.
    let refused = (1..100)
        .map(|token| (token, gateway.put("/x", token, "x")))
        .find(|(_, answer)| answer.status != 200);
    let (token, refused) = refused.expect("the disk is full");

    assert_eq!((refused.status, refused.code().as_str()), (503, "fence_store_unavailable"));
    assert_eq!(refused.outcome(), "not_forwarded");
    assert!(refused.header("retry-after").is_some());
    assert!(!api.tokens("/x").contains(&token));
    assert_eq!(gateway.put("/granted", 1, "a grant needs no disk").status, 200);
    let lease = gateway.try_acquire("/granted", "a", 1000, 0);
    assert_eq!((lease.status, lease.code().as_str()), (503, "coordinator_unavailable"));

    disk.make_room();
    assert_eq!(gateway.put("/x", token, "there is room").status, 200);
    assert_eq!(gateway.put("/other", 7, "there is room").status, 200);
    assert_eq!(gateway.try_acquire("/granted", "a", 1000, 0).status, 201);
    assert!(gateway.stop().success());
    let marks = gateway.store().marks();
    assert_eq!((marks["/x"], marks["/other"]), (token, 7));
}

#[test]
fn a_store_that_another_gateway_has_is_refused() {
    let api = Downstream::start();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("fencegate.db");
    let gateway = ordered(&api, &path);

    says(&refused(&path), &["in use by another", "stop that one", "--store"]);

    assert_eq!(gateway.put("/x", 1, "x").status, 200, "the first one has not suffered");
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_left_alone() {
    let api = Downstream::start();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("fencegate.db");
    assert!(ordered(&api, &path).stop().success());
    let store = StoreFile::at(&path);
    store.execute(
        "INSERT INTO _sqlx_migrations VALUES (9999, 'from the future', 0, true, x'00', 0)",
    );
    let runs = || store.rows::<(i64,)>("SELECT count(*) FROM instances");
    let before = runs();

    says(&refused(&path), &["newer Fencegate", "9999", "start that version"]);

    assert_eq!(runs(), before);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("noise");
    let noise: Vec<u8> = (0..20_000).map(|_| fastrand::u8(..)).collect();
    fs::write(&path, &noise).expect("a writable directory");

    says(&refused(&path), &["not a Fencegate store", "name another file"]);

    assert_eq!(fs::read(&path).expect("it is there"), noise);
}

#[test]
fn another_applications_database_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("theirs.db");
    StoreFile::at(&path).execute("CREATE TABLE fences (whose TEXT)");
    let theirs = fs::read(&path).expect("it was created");

    says(&refused(&path), &["not a Fencegate store", "name another file"]);

    assert_eq!(fs::read(&path).expect("it is there"), theirs);
}

#[test]
fn a_place_where_no_file_can_be_is_told() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    says(&refused(&dir.path().join("nowhere/f.db")), &["directory does not exist", "create it"]);
    says(&refused(dir.path()), &["is a directory", "name a file"]);
}

/// Bytes that a process has read so far, and its resident memory.
fn cost(gateway: &Gateway) -> (u64, u64) {
    let pid = gateway.pid().as_raw_nonzero();
    let number = |file: &str, key: &str| -> u64 {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("a known key");
        line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
    };
    (number("io", "rchar:"), 1024 * number("status", "RssAnon:"))
}

#[test]
fn many_fences_in_the_store_cost_nothing_at_the_start() {
    const MIB: u64 = 1 << 20;
    let api = Downstream::start();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("fencegate.db");
    let mut gateway = ordered(&api, &path);
    let (read_empty, memory_empty) = cost(&gateway);
    gateway.stop();
    gateway.store().execute(
        "INSERT INTO fences (resource, token, confirmed, owner, updated_at)
         SELECT '/x/' || value, 5, true, null, 0
         FROM (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n
               WHERE value < 200000) SELECT value FROM n)",
    );

    gateway.start();

    let (read, memory) = cost(&gateway);
    assert!(read < read_empty + MIB, "read {read} bytes, {read_empty} with an empty store");
    assert!(memory < memory_empty + 4 * MIB, "{memory} bytes, {memory_empty} with an empty store");
    assert_eq!(gateway.put("/x/199999", 4, "x").code(), "stale_fencing_token");
    assert_eq!(gateway.put("/x/199999", 6, "x").status, 200);
}
