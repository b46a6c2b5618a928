//! A PgBouncer in transaction mode in front of a PostgreSQL server.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use super::postgres::{USER, give_to_user, home};
use super::{as_user, free_port, signal, wait_until};

/// A pooler, ended when dropped.
pub struct PgBouncer {
    _home: TempDir,
    child: Child,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
}

impl PgBouncer {
    /// With fewer connections to the server than whoever uses it has to the pooler, so that what one transaction
    /// leaves behind is found by another's.
    pub fn before(server: u16) -> PgBouncer {
        PgBouncer::start(server, "")
    }

    /// The same, but it passes over settings of a session that it cannot keep.
    pub fn silent_before(server: u16) -> PgBouncer {
        PgBouncer::start(server, "ignore_startup_parameters = extra_float_digits\n")
    }

    fn start(server: u16, more: &str) -> PgBouncer {
        let home = home();
        let data = home.path().join("pgbouncer");
        fs::create_dir(&data).unwrap();
        let port = free_port();
        let dir = data.display();
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={server} dbname=postgres user=fencegate\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n\
             logfile = {dir}/log\npidfile = {dir}/pid\n{more}"
        );
        fs::write(data.join("pgbouncer.ini"), settings).unwrap();
        give_to_user(&data);
        let child = as_user(USER, Path::new("/usr/sbin/pgbouncer"))
            .arg("--quiet")
            .arg(data.join("pgbouncer.ini"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbouncer is installed");
        let mut pooler = PgBouncer { _home: home, child, port };
        wait_until("PgBouncer listens", || {
            let ended = pooler.child.try_wait().unwrap();
            let log = || fs::read_to_string(data.join("log")).unwrap_or_default();
            assert!(ended.is_none(), "PgBouncer ended: {}", log());
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        pooler
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        signal(&mut self.child, Signal::TERM);
        let _ = self.child.wait();
    }
}
