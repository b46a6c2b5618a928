//! A PostgreSQL server, alone or with standbys, that can be killed, restarted, promoted and restored.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{as_user, free_port, run, signal, wait_until};

/// Debian's package postgresql-15.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The server refuses to be root's.
pub(super) const USER: &str = "postgres";
/// The database user, a superuser who needs no password.
const ROLE: &str = "fencegate";

/// As production would have it, but small. `fsync` stays on: the gateway refuses a server without it.
const SETTINGS: &str = "
    listen_addresses = '127.0.0.1'
    unix_socket_directories = ''
    shared_buffers = 16MB
    max_connections = 60
    max_wal_size = 64MB
    logging_collector = off
    log_line_prefix = '%m [%p] '
";

/// Other roles than ours have to give a password.
const ACCESS: &str = "
host all         fencegate 127.0.0.1/32 trust
host replication fencegate 127.0.0.1/32 trust
host all         all       127.0.0.1/32 scram-sha-256
";

/// A server, ended when dropped.
pub struct Postgres {
    home: TempDir,
    port: u16,
    child: Option<Child>,
}

/// A copy of a server's data, to be restored.
pub struct Backup(TempDir);

impl Postgres {
    /// An empty server.
    pub fn start() -> Postgres {
        Postgres::start_with("")
    }

    /// An empty server with further lines in `postgresql.conf`.
    pub fn start_with(settings: &str) -> Postgres {
        Postgres::start_in(home(), settings)
    }

    /// An empty server below a directory of the test's choice, which [`USER`] can reach.
    pub fn start_below(directory: &Path, settings: &str) -> Postgres {
        let home = builder().tempdir_in(directory).unwrap();
        Postgres::start_in(home, settings)
    }

    fn start_in(home: TempDir, settings: &str) -> Postgres {
        copy(&template(), &home.path().join("data"));
        Postgres::on_data(home, settings)
    }

    /// A server on data that is there, on a port of its own.
    fn on_data(home: TempDir, settings: &str) -> Postgres {
        let mut server = Postgres { home, port: free_port(), child: None };
        server.configure(settings);
        server.start_again();
        server
    }

    /// A server that follows this one by streaming, called `name`. See [`Postgres::wait_for`].
    pub fn standby(&self, name: &str) -> Postgres {
        let home = home();
        let data = home.path().join("data");
        self.copy_to(&data);
        fs::write(data.join("standby.signal"), "").unwrap();
        let primary = self.port;
        let settings = format!(
            "primary_conninfo = 'host=127.0.0.1 port={primary} user={ROLE} application_name={name}'\n\
             synchronous_standby_names = ''\n"
        );
        Postgres::on_data(home, &settings)
    }

    /// Makes commits wait for these standbys, all of them, and waits until they follow.
    pub fn wait_for(&self, standbys: &[&str]) {
        let names = standbys.join(", ");
        let value =
            if names.is_empty() { String::new() } else { format!("{} ({names})", standbys.len()) };
        self.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{value}'"));
        self.sql("SELECT pg_reload_conf()");
        let count = standbys.len().to_string();
        wait_until("the standbys follow", || {
            self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == count
        });
    }

    /// Makes a standby a primary.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote(true, 60)"), "t");
    }

    /// Copies the data as they are now.
    pub fn backup(&self) -> Backup {
        let home = home();
        self.copy_to(&home.path().join("data"));
        Backup(home)
    }

    fn copy_to(&self, data: &Path) {
        fs::create_dir(data).unwrap();
        give_to_user(data);
        let mut command = as_user(USER, &program("pg_basebackup"));
        run(self
            .connect(&mut command)
            .args(["--checkpoint=fast", "--wal-method=stream", "--no-sync", "--pgdata"])
            .arg(data));
    }

    /// Stops the server, puts `backup` in place of its data, and starts it on the same port.
    pub fn restore(&mut self, backup: &Backup) {
        self.stop();
        fs::remove_dir_all(self.data()).unwrap();
        copy(&backup.0.path().join("data"), &self.data());
        self.configure("");
        self.start_again();
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of its one database.
    pub fn url(&self) -> String {
        url_at(self.port)
    }

    /// Runs statements, and answers their rows: a line each, columns separated by `|`.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> String {
        let mut command = Command::new(program("psql"));
        let rows = run(self
            .connect(&mut command)
            .args(["--dbname=postgres", "--no-psqlrc", "--tuples-only", "--no-align", "--quiet"])
            .args(["--set=ON_ERROR_STOP=1", "--command", statements]));
        rows.trim_end().to_owned()
    }

    /// What it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Ends it in good order, disconnecting everybody.
    pub fn stop(&mut self) {
        self.end(Signal::INT);
    }

    /// Kills all of its processes.
    pub fn kill(&mut self) {
        let children = self.children();
        self.end(Signal::KILL);
        for child in children {
            let _ = kill_process(child, Signal::KILL);
        }
    }

    /// Lets all of its processes stand still.
    pub fn suspend(&mut self) {
        self.signal_all(Signal::STOP);
    }

    /// Lets them go on.
    pub fn resume(&mut self) {
        self.signal_all(Signal::CONT);
    }

    /// Starts it where it was, after it was stopped or killed, and waits until it answers.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        self.launch();
        wait_until("PostgreSQL is ready", || {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            if let Some(status) = ended {
                // Processes of a killed predecessor hold its memory for a moment.
                let log = self.log();
                let last = log.lines().rev().take(8).collect::<Vec<_>>().join("\n");
                let is_held = last.contains("shared memory block") || last.contains("lock file");
                assert!(is_held, "PostgreSQL ended with {status}: {log}");
                self.launch();
            }
            // Its eighth line is the state.
            let state = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
            state.lines().nth(7).is_some_and(|state| state.trim() == "ready") && self.is_its(&state)
        });
    }

    fn launch(&mut self) {
        let log = self.home.path().join("log");
        let log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = as_user(USER, &program("postgres"));
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("postgresql-15 is installed"));
    }

    /// Whether a state file is this run's, and not left by a killed one.
    fn is_its(&self, state: &str) -> bool {
        let pid = self.child.as_ref().map(|child| child.id().to_string());
        state.lines().next() == pid.as_deref()
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn configure(&self, settings: &str) {
        // Read last, so that it wins over what a copied server was told.
        let path = self.data().join("postgresql.auto.conf");
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(settings.as_bytes()).unwrap();
    }

    fn connect<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let port = self.port.to_string();
        command.args(["--host=127.0.0.1", "--username", ROLE, "--port", &port])
    }

    fn end(&mut self, how: Signal) {
        if let Some(mut child) = self.child.take() {
            signal(&mut child, Signal::CONT);
            signal(&mut child, how);
            child.wait().unwrap();
        }
    }

    fn signal_all(&mut self, how: Signal) {
        for child in self.children() {
            let _ = kill_process(child, how);
        }
        if let Some(child) = &mut self.child {
            signal(child, how);
        }
    }

    fn children(&self) -> Vec<Pid> {
        let Some(child) = &self.child else { return Vec::new() };
        let path = format!("/proc/{0}/task/{0}/children", child.id());
        let pids = fs::read_to_string(path).unwrap_or_default();
        pids.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.resume();
        self.end(Signal::QUIT);
    }
}

/// The URL of a server, or of what stands in front of it, on this port of 127.0.0.1.
pub fn url_at(port: u16) -> String {
    format!("postgres://{ROLE}@127.0.0.1:{port}/postgres?sslmode=disable")
}

fn program(name: &str) -> PathBuf {
    Path::new(PROGRAMS).join(name)
}

pub(super) fn home() -> TempDir {
    builder().tempdir().unwrap()
}

/// Directories that [`USER`] can pass through.
fn builder() -> tempfile::Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut builder = tempfile::Builder::new();
    builder.prefix("fencegate-postgres").permissions(fs::Permissions::from_mode(0o755));
    builder
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("--archive").arg(from).arg(to));
    give_to_user(to);
}

pub(super) fn give_to_user(directory: &Path) {
    if rustix::process::getuid().is_root() {
        run(Command::new("chown").args(["--recursive", USER]).arg(directory));
    }
    run(Command::new("chmod").arg("0700").arg(directory));
}

/// The data of a server that never ran, made once and kept.
fn template() -> PathBuf {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tmp");
    let template = kept.join("postgres-template");
    if template.exists() {
        return template;
    }
    let home = home();
    let data = home.path().join("data");
    fs::create_dir(&data).unwrap();
    give_to_user(&data);
    run(as_user(USER, &program("initdb"))
        .args(["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"])
        .args(["--wal-segsize=1", "--username", ROLE, "--pgdata"])
        .arg(&data));
    let add = |name: &str, text: &str| {
        let path = data.join(name);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(path, before + text).unwrap();
    };
    add("postgresql.conf", SETTINGS);
    fs::write(data.join("pg_hba.conf"), ACCESS).unwrap();
    fs::create_dir_all(&kept).unwrap();
    let copied = tempfile::Builder::new().tempdir_in(&kept).unwrap();
    copy(&data, &copied.path().join("data"));
    // Another process may have been quicker: then its copy is as good.
    let _ = fs::rename(copied.path().join("data"), &template);
    template
}
