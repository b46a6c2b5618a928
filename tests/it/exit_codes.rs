//! Every exit code of the table in `docs/cli.md`, provoked for every command that has it.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::command::{fencegate, run};
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;

const PAGE: &str = include_str!("../../docs/cli.md");
/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Pairs of a command and a code, as the page has them.
fn documented() -> BTreeSet<(String, String)> {
    let (_, table) = PAGE.split_once("\n## Exit codes\n").expect("the table is there");
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| code"));
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let code = cells[0].to_owned();
        let commands: Vec<String> =
            cells[2].split(", ").map(|command| command.trim_matches('`').to_owned()).collect();
        commands.into_iter().map(move |command| (command, code.clone()))
    })
    .collect()
}

/// What was provoked so far.
struct Provoked {
    home: TempDir,
    pairs: BTreeSet<(String, String)>,
}

impl Provoked {
    fn command(&self, args: &str) -> Command {
        fencegate(self.home.path(), &args.split(' ').collect::<Vec<_>>())
    }

    /// Runs these words, and expects this code of the command.
    #[track_caller]
    fn ends(&mut self, command: &str, code: &str, args: &str) {
        let process = self.command(args);
        self.ends_so(command, code, process);
    }

    #[track_caller]
    fn ends_so(&mut self, command: &str, code: &str, process: Command) {
        let said = format!("{process:?}");
        let ended = run(process);
        let real = ended.code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        let expected = code.strip_suffix("+N").map_or(code.to_owned(), |base| {
            (base.parse::<i32>().expect("a number") + Signal::TERM.as_raw()).to_string()
        });
        assert_eq!(real, expected, "{said}: {ended:?}");
        self.pairs.insert((command.to_owned(), code.to_owned()));
    }

    /// The same with nowhere to write to.
    #[track_caller]
    fn cannot_print(&mut self, command: &str, code: &str, args: &str) {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let status = self
            .command(args)
            .stdin(Stdio::null())
            .stdout(full)
            .stderr(Stdio::null())
            .status()
            .expect("it was built");
        assert_eq!(status.code().map(|code| code.to_string()).as_deref(), Some(code), "{args}");
        self.pairs.insert((command.to_owned(), code.to_owned()));
    }
}

fn of_the_gateway(provoked: &mut Provoked, api: SocketAddr) {
    let anywhere = "--listen 127.0.0.1:0 --leases 127.0.0.1:0 --admin 127.0.0.1:0";
    let upstream = format!("--upstream http://{api}");
    let mut gateway = Gateway::guard(api);
    assert_eq!(gateway.stop().code(), Some(0));
    provoked.pairs.insert(("serve".to_owned(), "0".to_owned()));
    provoked.ends("serve", "64", "serve --upstream nonsense");
    provoked.ends(
        "serve",
        "69",
        &format!("serve {upstream} {anywhere} --store sqlite:/no/such/place.db"),
    );
    provoked.ends("migrate", "0", &format!("migrate {upstream}"));
    provoked.ends("migrate", "64", "migrate --upstream nonsense");
    provoked.ends("migrate", "69", &format!("migrate {upstream} --store sqlite:/no/such/place.db"));
    provoked.ends("config check", "0", &format!("config check {upstream}"));
    provoked.ends("config check", "64", "config check --upstream nonsense");
    provoked.cannot_print("config check", "1", &format!("config check {upstream}"));
    provoked.ends("demo", "0", "demo");
    provoked.ends("demo", "64", "demo --faster");
    provoked.cannot_print("demo", "1", "demo");
}

fn of_operators(provoked: &mut Provoked, gateway: &Gateway) {
    let admin = format!("--admin http://{}", gateway.admin);
    provoked.ends("fence", "0", &format!("fence list {admin}"));
    provoked.ends("fence", "1", &format!("fence show --resource nothing {admin}"));
    provoked.ends("fence", "64", "fence list --admin nonsense");
    provoked.ends("fence", "69", &format!("fence list --admin {NOWHERE}"));
    provoked.cannot_print("fence", "71", &format!("fence list {admin}"));
    provoked.ends("coordinator", "0", &format!("coordinator show {admin}"));
    provoked.ends("coordinator", "1", &format!("coordinator adopt {admin}"));
    provoked.ends("coordinator", "64", "coordinator show --admin nonsense");
    provoked.ends("coordinator", "69", &format!("coordinator show --admin {NOWHERE}"));
    provoked.cannot_print("coordinator", "71", &format!("coordinator show {admin}"));
}

fn of_workers(provoked: &mut Provoked, gateway: &Gateway) {
    let leases = format!("--leases http://{}", gateway.leases);
    gateway.acquire("held", "somebody", 60_000);
    provoked.ends("lease", "0", &format!("lease list {leases}"));
    provoked.ends("lease", "1", &format!("lease show --resource nothing {leases}"));
    provoked.ends("lease", "64", "lease list --leases nonsense");
    provoked.ends("lease", "69", &format!("lease list --leases {NOWHERE}"));
    provoked.cannot_print("lease", "71", &format!("lease list {leases}"));
    provoked.ends("lease", "75", &format!("lease acquire --resource held {leases}"));
    provoked.ends(
        "lease",
        "76",
        &format!("lease renew --resource held --owner me --token 99 {leases}"),
    );
    provoked.ends("run", "0", &format!("run --resource x {leases} -- true"));
    provoked.ends("run", "64", &format!("run --resource x {leases}"));
    provoked.ends("run", "69", &format!("run --resource x --leases {NOWHERE} -- true"));
    provoked.ends("run", "75", &format!("run --resource held {leases} -- true"));
    provoked.ends("run", "126", &format!("run --resource x {leases} -- /etc/passwd"));
    provoked.ends("run", "127", &format!("run --resource x {leases} -- no-such-command"));
    let mut killed = provoked.command(&format!("run --resource x {leases} -- sh -c"));
    killed.arg("kill -TERM $$");
    provoked.ends_so("run", "128+N", killed);
    // Another run of the same name ends this one's lease.
    let again = format!(
        "{} lease acquire --resource x --owner me --ttl 60s {leases} && sleep 60",
        env!("CARGO_BIN_EXE_fencegate")
    );
    let mut lost =
        provoked.command(&format!("run --resource x --owner me --ttl 1s {leases} -- sh -c"));
    lost.arg(again);
    provoked.ends_so("run", "76", lost);
    // With that many files there is room to begin and none for the sockets that it takes to watch over a command.
    let binary = env!("CARGO_BIN_EXE_fencegate");
    let crowded = |room: u32| {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("ulimit -n {room}; exec {binary} run --resource y {leases} -- true"));
        shell
    };
    let room = (8..32).find(|room| run(crowded(*room)).code == Some(71)).expect("such a number");
    provoked.ends_so("run", "71", crowded(room));
}

fn of_credentials(provoked: &mut Provoked) {
    let new = "credential new --name ann --resource * --token-file ann";
    provoked.ends("credential", "0", new);
    provoked.ends("credential", "71", new);
    provoked.ends("credential", "64", "credential new --name ann --resource a*b");
}

#[test]
fn every_exit_code_of_the_page_is_real_and_no_other_is_documented() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut provoked = Provoked { home, pairs: BTreeSet::new() };

    of_the_gateway(&mut provoked, api.address);
    of_operators(&mut provoked, &gateway);
    of_workers(&mut provoked, &gateway);
    of_credentials(&mut provoked);

    assert_eq!(provoked.pairs, documented());
}
