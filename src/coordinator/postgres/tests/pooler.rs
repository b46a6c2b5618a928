use std::process::{Child, Command, Stdio};

use super::Fresh;
use crate::servers;

/// pgbouncer in transaction mode, with fewer sessions than clients.
pub(super) struct Pooler {
    pub(super) port: u16,
    child: Child,
    _home: tempfile::TempDir,
}

impl Pooler {
    pub(super) fn start(fresh: &Fresh) -> Pooler {
        let home = tempfile::tempdir().unwrap();
        let (port, users) = (servers::free_port(), home.path().join("users"));
        std::fs::write(&users, "\"fencegate\" \"\"\n").unwrap();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = 3\nuser = postgres\n",
            fresh.server.port(),
            users.display()
        );
        let path = home.path().join("settings");
        std::fs::write(&path, settings).unwrap();
        let world = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(home.path(), world).unwrap();
        let child = Command::new("/usr/sbin/pgbouncer")
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbouncer is installed");
        servers::wait_until("pgbouncer listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Pooler { port, child, _home: home }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
