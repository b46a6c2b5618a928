//! nginx in its three parts: the upstream, the plain reverse proxy, and the gateway that people
//! build at home with `auth_request`.
//!
//! One worker process, kept-alive connections on both sides, no access log: as fast as it gets
//! without leaving what its manual recommends.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use crate::machine::Cores;
use crate::peers::Peers;
use crate::process::{Server, free_address, pinned};

/// A server that takes every request and keeps nothing, at the least cost.
pub(crate) fn upstream(
    peers: &Peers,
    cores: &Cores,
    directory: &Path,
) -> Result<(Server, SocketAddr)> {
    start(peers, &cores.load, directory, "upstream", |address| {
        format!("server {{ listen {address} backlog=1024; location / {{ return 204; }} }}\n")
    })
}

/// A reverse proxy without any fencing.
pub(crate) fn plain_proxy(
    peers: &Peers,
    cores: &Cores,
    directory: &Path,
    name: &str,
    upstream: SocketAddr,
) -> Result<(Server, SocketAddr)> {
    proxy_with(peers, cores, directory, name, upstream, ("", ""))
}

/// The same with options of `listen`, and further directives of its server.
pub(crate) fn proxy_with(
    peers: &Peers,
    cores: &Cores,
    directory: &Path,
    name: &str,
    upstream: SocketAddr,
    (options, more): (&str, &str),
) -> Result<(Server, SocketAddr)> {
    start(peers, &cores.proxy, directory, name, |address| {
        format!(
            "{}server {{\n listen {address} backlog=1024 {options};\n {KEPT_ALIVE}\n {more}\n \
             location / {{ proxy_pass http://upstream; }}\n}}\n",
            pool("upstream", upstream),
        )
    })
}

/// A reverse proxy that asks a check service about every request.
pub(crate) fn asking_proxy(
    peers: &Peers,
    cores: &Cores,
    directory: &Path,
    upstream: SocketAddr,
    check: SocketAddr,
) -> Result<(Server, SocketAddr)> {
    start(peers, &cores.proxy, directory, "nginx-asking", |address| {
        format!(
            "{}{}server {{\n listen {address} backlog=1024;\n {KEPT_ALIVE}\n \
             location / {{ auth_request /check; proxy_pass http://upstream; }}\n \
             location = /check {{\n  internal;\n  proxy_pass http://check;\n  \
             proxy_pass_request_body off;\n  proxy_http_version 1.1;\n  \
             proxy_set_header Connection \"\";\n  proxy_set_header Content-Length \"\";\n  \
             proxy_set_header X-Original-URI $request_uri;\n }}\n}}\n",
            pool("upstream", upstream),
            pool("check", check),
        )
    })
}

const KEPT_ALIVE: &str = "proxy_http_version 1.1; proxy_set_header Connection \"\";";

/// A pool larger than the number of clients, so that no connection is ever closed.
fn pool(name: &str, address: SocketAddr) -> String {
    format!(
        "upstream {name} {{ server {address}; keepalive 256; keepalive_requests 1000000000; }}\n"
    )
}

fn start(
    peers: &Peers,
    cores: &str,
    directory: &Path,
    name: &str,
    servers: impl Fn(SocketAddr) -> String,
) -> Result<(Server, SocketAddr)> {
    let address = free_address()?;
    let prefix = directory.join(name);
    fs::create_dir_all(&prefix)?;
    let mut config = String::new();
    if rustix::process::geteuid().is_root() {
        // The worker would give up root for a user that may not enter the directory.
        config.push_str("user root;\n");
    }
    config.push_str(
        "daemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log stderr crit;\n\
         events { worker_connections 2048; }\nhttp {\naccess_log off;\n\
         keepalive_timeout 300s;\nkeepalive_requests 1000000000;\n",
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(config, "{kind}_temp_path {kind};")?;
    }
    writeln!(config, "{}}}", servers(address))?;
    fs::write(prefix.join("nginx.conf"), config)?;

    let mut command = pinned(cores, &peers.nginx);
    command.arg("-p").arg(&prefix).args(["-c", "nginx.conf"]);
    Ok((Server::start(name, command, directory)?, address))
}
