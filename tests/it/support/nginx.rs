//! A downstream that nobody here wrote: nginx with its WebDAV module, storing what is PUT to it.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::wait_until;

/// A running nginx, stopped when dropped.
pub struct Nginx {
    dir: TempDir,
    child: Child,
    pub address: SocketAddr,
}

/// A line of its access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub status: u16,
    pub method: String,
    /// As it came.
    pub target: String,
    pub token: Option<u64>,
}

/// A request as its second log has it: when, and under which name (`X-Write`) and token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Milliseconds since 1970 at which nginx began to read it.
    pub began_ms: u64,
    /// Milliseconds since 1970 at which it was over. The log is in this order.
    pub ended_ms: u64,
    pub status: u16,
    pub method: String,
    pub target: String,
    pub token: Option<u64>,
    pub name: String,
}

impl Nginx {
    /// Starts it on a free port, with an empty directory to store into.
    pub fn start() -> Nginx {
        Nginx::listening("", "")
    }

    /// Starts one that lets only those in who send one of these values of `Authorization`; which one
    /// it was, counted from 0, is in the answer's `X-Credential`.
    pub fn demanding(values: &[&str]) -> Nginx {
        let known = values.iter().enumerate().map(|(nth, value)| {
            format!("if ($http_authorization = \"{value}\") {{ set $known {nth}; }}\n")
        });
        let known: String = known.collect();
        Nginx::listening(
            "",
            &format!(
                "set $known nobody;\n{known}if ($known = nobody) {{ return 401; }}\n\
             add_header X-Credential $known always;\n"
            ),
        )
    }

    /// The same with these options of `listen`, and these directives of its server.
    pub fn listening(options: &str, more: &str) -> Nginx {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(dir.path().join("files")).expect("a writable directory");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.expect("a free port");
        let config = dir.path().join("nginx.conf");
        let text = configuration(dir.path(), address, options, more);
        fs::write(&config, text).expect("a writable directory");
        let child = Command::new("nginx")
            .arg("-p")
            .arg(dir.path())
            .arg("-e")
            .arg(dir.path().join("error.log"))
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is installed (apt-get install nginx-light)");
        let mut nginx = Nginx { dir, child, address };
        wait_until("nginx listens", || {
            if let Ok(Some(status)) = nginx.child.try_wait() {
                let log = fs::read_to_string(nginx.dir.path().join("error.log"));
                panic!("nginx ended with {status}: {}", log.unwrap_or_default());
            }
            TcpStream::connect(address).is_ok()
        });
        nginx
    }

    /// Where it stores.
    pub fn files(&self) -> PathBuf {
        self.dir.path().join("files")
    }

    /// What it stored: each file's path below the root, which begins with a slash, and its content.
    pub fn stored(&self) -> Vec<(String, Vec<u8>)> {
        let mut stored = Vec::new();
        collect(&self.files(), "", &mut stored);
        stored
    }

    /// Removes what it stored.
    pub fn clear(&self) {
        fs::remove_dir_all(self.files()).expect("ours");
        fs::create_dir(self.files()).expect("a writable directory");
    }

    /// Its access log. A line comes shortly after the answer.
    pub fn accesses(&self) -> Vec<Access> {
        let log = fs::read_to_string(self.dir.path().join("access.log")).unwrap_or_default();
        log.lines().filter_map(access).collect()
    }

    /// The log with times. A line comes shortly after the answer.
    pub fn timed(&self) -> Vec<Timed> {
        let log = fs::read_to_string(self.dir.path().join("timed.log")).unwrap_or_default();
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole
            .lines()
            .map(|line| timed(line).unwrap_or_else(|| panic!("not of our format: {line}")))
            .collect()
    }

    /// Lets it finish what it has begun, and ends it: its logs and files are final then.
    pub fn finish(&mut self) {
        self.signal(Signal::QUIT);
        wait_until("nginx ends", || self.child.try_wait().expect("our child").is_some());
    }

    fn signal(&mut self, signal: Signal) {
        // Once it was waited for, its number may be somebody else's.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let _ = self.child.wait();
    }
}

/// One process, so that ending it ends all of it.
fn configuration(dir: &Path, address: SocketAddr, options: &str, more: &str) -> String {
    let dir = dir.display();
    format!(
        r#"daemon off;
master_process off;
pid {dir}/nginx.pid;
events {{ worker_connections 512; }}
http {{
    log_format seen '$status $request_method $request_uri $http_fencing_token';
    log_format timed '$msec $request_time $status $request_method $request_uri '
                     '$http_fencing_token $http_x_write';
    access_log {dir}/access.log seen;
    access_log {dir}/timed.log timed;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    server {{
        listen {address} {options};
        {more}
        client_max_body_size 100m;
        location / {{
            root {dir}/files;
            dav_methods PUT DELETE MKCOL COPY MOVE;
            create_full_put_path on;
        }}
    }}
}}
"#
    )
}

fn access(line: &str) -> Option<Access> {
    let mut words = line.split(' ');
    Some(Access {
        status: words.next()?.parse().ok()?,
        method: words.next()?.to_owned(),
        target: words.next()?.to_owned(),
        token: words.next()?.parse().ok(),
    })
}

fn timed(line: &str) -> Option<Timed> {
    let mut words = line.split(' ');
    let ended_ms = millis(words.next()?)?;
    Some(Timed {
        began_ms: ended_ms - millis(words.next()?)?,
        ended_ms,
        status: words.next()?.parse().ok()?,
        method: words.next()?.to_owned(),
        target: words.next()?.to_owned(),
        token: words.next()?.parse().ok(),
        name: words.next()?.to_owned(),
    })
}

/// Reads seconds with exactly three decimals.
fn millis(seconds: &str) -> Option<u64> {
    let (whole, decimals) = seconds.split_once('.')?;
    (decimals.len() == 3).then(|| format!("{whole}{decimals}").parse().ok())?
}

fn collect(dir: &Path, below: &str, stored: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(dir).expect("a directory of ours").flatten() {
        let name = format!("{below}/{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        if path.is_dir() {
            collect(&path, &name, stored);
        } else {
            stored.push((name, fs::read(path).expect("a file of ours")));
        }
    }
}
