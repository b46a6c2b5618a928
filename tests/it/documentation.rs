//! The pages: every link leads somewhere, every page is in the index, and every shell block does what it says, against
//! a real gateway.

mod pages;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use self::pages::{Page, pages};
use crate::servers::etcd::Etcd;
use crate::servers::postgres::Postgres;
use crate::support::command::{Ended, fencegate, run};
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::wait_until;

/// Whose shell blocks are run: the quick start's by `readme.rs`, the others' here.
const RUN: [&str; 3] = ["README.md", "docs/run.md", "docs/workers.md"];
/// What is run here page by page, or has tests of its own: `tests/deploy` sees to what is installed.
const OF_THEIR_OWN: [&str; 4] = ["docs/runbooks/", "dashboards/", "deploy/", "docs/installing.md"];

#[test]
fn every_link_leads_to_a_page_and_a_heading_that_are_there() {
    let mut broken = Vec::new();
    for page in pages() {
        for link in page.links() {
            if let Some(why) = page.is_broken(&link) {
                broken.push(format!("{}: {link}: {why}", page.name));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_page_is_in_the_index_or_in_that_of_the_runbooks() {
    let all = pages();
    let linked = |name: &str| -> BTreeSet<String> {
        let index = all.iter().find(|page| page.name == name).expect("the index");
        index.links().iter().filter_map(|link| index.target(link)).collect()
    };
    let (index, runbooks) = (linked("docs/README.md"), linked("docs/runbooks/README.md"));
    for page in all.iter().filter(|page| page.name.starts_with("docs/")) {
        let of = if page.name.starts_with("docs/runbooks/f") { &runbooks } else { &index };
        assert!(page.name == "docs/README.md" || of.contains(&page.name), "{}", page.name);
    }
}

/// A place where a reader types what the pages say.
struct Stage {
    home: TempDir,
    gateway: Gateway,
    api: Downstream,
    etcd: Option<Etcd>,
}

impl Stage {
    /// A gateway that hands out leases itself, or one on etcd.
    fn new(etcd: Option<Etcd>) -> Stage {
        let api = Downstream::start();
        let coordinator = etcd.as_ref().map_or_else(String::new, |etcd| {
            format!("[coordinator]\nurl = \"etcd://{}\"\n", etcd.endpoints().join(","))
        });
        let config = format!(
            "{coordinator}[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\n\
             [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\n",
            api.address
        );
        let gateway = Gateway::with_config(&config);
        let home = tempfile::tempdir().expect("a temporary directory");
        let place = |name: &str| home.path().join(name);
        fs::write(place("fencegate.toml"), config).expect("writable");
        fs::write(place("report"), "the report\n").expect("writable");
        fs::write(place("invoices.sh"), "#!/bin/sh\nexit 0\n").expect("writable");
        fs::set_permissions(place("invoices.sh"), Permissions::from_mode(0o755)).expect("ours");
        symlink(env!("CARGO_BIN_EXE_fencegate"), place("fencegate")).expect("writable");
        for name in ["examples", "dashboards"] {
            symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join(name), place(name))
                .expect("writable");
        }
        Stage { home, gateway, api, etcd }
    }

    /// A block with this stage's addresses in it.
    fn script(&self, block: &str) -> String {
        [
            ("gateway:8080", self.gateway.proxy),
            ("127.0.0.1:8080", self.gateway.proxy),
            ("127.0.0.1:8081", self.gateway.leases),
            ("127.0.0.1:9090", self.gateway.admin),
            ("127.0.0.1:9000", self.api.address),
        ]
        .iter()
        .fold(block.to_owned(), |script, (port, address)| {
            script.replace(port, &address.to_string())
        })
    }

    /// A shell that is about to do this block.
    fn shell(&self, block: &str) -> Command {
        let script = self.script(block);
        let mut shell = Command::new("/bin/sh");
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"FENCEGATE_") {
                shell.env_remove(name);
            }
        }
        let paths = std::env::var("PATH").unwrap_or_default();
        shell
            .args(["-e", "-c", &script])
            .current_dir(self.home.path())
            .env("PATH", format!("{}:{paths}", self.home.path().display()))
            .env("FENCEGATE_LEASES", format!("http://{}", self.gateway.leases))
            .env("FENCEGATE_ADMIN", format!("http://{}", self.gateway.admin))
            .env("LEASES", format!("http://{}", self.gateway.leases))
            .env("GATEWAY", format!("http://{}", self.gateway.proxy))
            .env("PAUSE_MS", "10")
            .env("GO111MODULE", "off")
            .env("ETCDCTL_API", "3");
        if let Some(etcd) = &self.etcd {
            shell.env("ETCDCTL_ENDPOINTS", etcd.endpoints().join(","));
        }
        shell
    }

    #[track_caller]
    fn does(&self, page: &Page, block: &str) -> Ended {
        let ended = run(self.shell(block));
        assert_eq!(ended.code, Some(0), "{}: {block}\n{ended:?}", page.name);
        ended
    }
}

fn page(name: &str) -> Page {
    pages().into_iter().find(|page| page.name == name).expect("the page is there")
}

/// Blocks that are nothing but calls of cargo or of `./test.sh` are what runs this test.
fn is_of_the_build(block: &str) -> bool {
    block.lines().all(|line| {
        let mut words = line.split_whitespace().skip_while(|word| word.contains('='));
        words.next().is_none_or(|word| ["cargo", "./test.sh"].contains(&word))
    })
}

#[test]
fn every_page_with_shell_blocks_is_run_by_a_test() {
    let with_blocks: BTreeSet<String> = pages()
        .into_iter()
        .filter(|page| page.shell().iter().any(|(block, _)| !is_of_the_build(block)))
        .map(|page| page.name)
        .filter(|name| !OF_THEIR_OWN.iter().any(|place| name.starts_with(place)))
        .collect();
    let expected: BTreeSet<String> = RUN.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(with_blocks, expected, "run the blocks of a new page in a test, and name it in RUN");
}

#[test]
fn the_page_on_commands_under_a_lease_does_what_it_says() {
    let stage = Stage::new(None);
    let page = page("docs/run.md");
    let blocks = page.shell();
    let [(whole, _), (writes, _), (by_hand, _)] = &blocks[..] else { panic!("{blocks:?}") };

    stage.does(&page, whole);

    fs::write(stage.home.path().join("writes.sh"), stage.script(writes)).expect("writable");
    stage.does(
        &page,
        "fencegate run --resource /reports/7 --gateway http://127.0.0.1:8080 -- sh -e writes.sh",
    );
    assert_eq!(stage.api.tokens("/reports/7").len(), 3, "each way has the token");

    // The page's token is the seventh.
    for number in 3..7 {
        stage.gateway.acquire(&format!("other-{number}"), "x", 60_000);
    }
    let ended = stage.does(&page, by_hand);
    assert!(ended.stdout.contains("\"token\": \"7\""), "{ended:?}");
    assert_eq!(stage.gateway.holder("job:invoices"), None);
}

#[test]
fn the_job_of_the_readme_writes_under_a_lease() {
    let stage = Stage::new(None);
    let readme = page("README.md");
    let block = readme.shell().into_iter().find(|(block, _)| block.contains("fencegate run"));
    stage.does(&readme, &block.expect("it is there").0);
    assert_eq!(stage.api.tokens("/reports/may").len(), 1);
}

#[test]
fn each_worker_of_the_page_on_workers_writes_its_three_lines() {
    let page = page("docs/workers.md");
    let blocks = page.shell();
    assert_eq!(blocks.len(), 4);
    for (block, _) in blocks {
        let stage = Stage::new(None);
        let ended = stage.does(&page, &block);
        assert!(ended.stdout.ends_with("wrote line 3\n"), "{ended:?}");
        assert_eq!(stage.api.tokens("/reports/may").len(), 3);
    }
}

#[test]
fn what_the_runbooks_say_to_type_works_and_answers_as_they_show() {
    let mut stage = Stage::new(Some(Etcd::single()));
    let token = stage.gateway.acquire("/reports/may", "a", 3_600_000);
    assert_eq!(stage.gateway.put("/reports/may", token, "x").status, 200);
    wait_until("etcd's history is marked", || {
        stage.gateway.admin("/v1/coordinator").json()["marked_revision"].as_u64() > Some(0)
    });
    let adopts = |page: &Page| page.name.ends_with("fencegate-coordinator-changed.md");
    let (runbooks, last): (Vec<Page>, Vec<Page>) = pages()
        .into_iter()
        .filter(|page| page.name.starts_with("docs/runbooks/f"))
        .partition(|page| !adopts(page));
    assert_eq!(last.len(), 1);

    for page in &runbooks {
        run_all(&stage, page);
    }
    stage.etcd.as_mut().expect("started above").wipe();
    wait_until("etcd is not what it was", || {
        !stage.gateway.admin("/v1/coordinator").json()["changed"].is_null()
    });
    run_all(&stage, &last[0]);
    assert_eq!(stage.gateway.admin("/v1/coordinator").json()["epoch"], 2, "it was adopted");
}

#[test]
fn every_piece_of_configuration_is_one_that_serve_would_take() {
    let home = tempfile::tempdir().expect("a temporary directory");
    fs::write(home.path().join("fencegate-db"), "secret").expect("writable");
    let (mut checked, mut credentials) = (0, 0);
    for page in
        pages().iter().filter(|page| page.name.starts_with("docs/") || page.name == "README.md")
    {
        for block in page.blocks("toml") {
            let mut text = block.replace("/run/secrets", &home.path().display().to_string());
            if text.contains("[[credential]]") {
                fs::write(home.path().join("credentials.toml"), &text).expect("writable");
                text = "[access]\ncredentials = \"credentials.toml\"\n".to_owned();
                credentials += 1;
            }
            for (table, rest) in [
                ("[[upstream]]", "name = \"ledger\"\nurl = \"http://127.0.0.1:9000\"\n"),
                ("[[route]]", "path = \"/{*rest}\"\nupstream = \"ledger\"\n"),
            ] {
                if !text.contains(table) {
                    text = format!("{text}\n{table}\n{rest}");
                }
            }
            if text.contains("postgres://") && !text.contains("[coordinator]") {
                text = format!("{text}\n[coordinator]\nurl = \"etcd://127.0.0.1:2379\"\n");
            }
            fs::write(home.path().join("fencegate.toml"), &text).expect("writable");
            let ended =
                run(fencegate(home.path(), &["config", "check", "--config", "fencegate.toml"]));
            assert_eq!(ended.code, Some(0), "{}: {text}\n{ended:?}", page.name);
            checked += 1;
        }
    }
    assert!(checked >= 3 && credentials >= 1, "{checked} {credentials}");
}

#[test]
fn every_statement_for_the_database_is_one_that_it_takes() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let table = format!("url = \"{}\"", server.url());
    let mut gateway = Gateway::one_of_several(api.address, &table, &server.url());
    gateway.start();
    assert_eq!(gateway.put("/reports/may", 5, "x").status, 200);
    let mut answers = String::new();
    for page in pages().iter().filter(|page| page.name.starts_with("docs/")) {
        for statements in page.blocks("sql") {
            for statement in statements.split(';').map(str::trim).filter(|one| !one.is_empty()) {
                // The server of the tests has this user and this database already.
                answers += &server.sql(&statement.replace("fencegate", "another_fencegate"));
            }
        }
    }
    assert!(answers.contains("/reports/may"), "the grant is seen: {answers}");
}

/// Runs a page's blocks; where one is followed by an answer, that has the same fields as the real one.
#[track_caller]
fn run_all(stage: &Stage, page: &Page) {
    for (block, shown) in page.shell() {
        let ended = stage.does(page, &block);
        let Some(shown) = shown else { continue };
        let parse = |text: &str| -> Value {
            serde_json::from_str(text)
                .unwrap_or_else(|error| panic!("{}: {error}: {text}", page.name))
        };
        let fields = |value: &Value| -> BTreeSet<String> {
            value.as_object().expect("an object").keys().cloned().collect()
        };
        assert_eq!(fields(&parse(&shown)), fields(&parse(&ended.stdout)), "{}", page.name);
    }
}
