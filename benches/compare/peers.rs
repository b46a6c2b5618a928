//! The programs that Fencegate is compared with, from the distribution's packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Where the peers are, and which versions they are.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) nginx: PathBuf,
    pub(crate) nginx_version: String,
    pub(crate) wrk: PathBuf,
    pub(crate) wrk_version: String,
    pub(crate) h2load: PathBuf,
}

/// The package that has nginx with `auth_request` and nothing that has to be configured away.
const NGINX_PACKAGE: &str = "nginx-light";
const WRK_PACKAGE: &str = "wrk";
/// For the rows about TLS and HTTP/2.
const H2LOAD_PACKAGE: &str = "nghttp2-client";
/// For the rows about several gateways.
const SHARED: [(&str, &str); 2] =
    [("etcd", "etcd-server"), ("/usr/lib/postgresql/15/bin/pgbench", "postgresql-15")];

/// Finds what is compared with, or installs it where this user may.
pub(crate) fn find_or_install() -> Result<Peers> {
    let missing: Vec<&str> =
        [("nginx", NGINX_PACKAGE), ("wrk", WRK_PACKAGE), ("h2load", H2LOAD_PACKAGE)]
            .into_iter()
            .chain(SHARED)
            .filter(|(program, _)| find(program).is_none())
            .map(|(_, package)| package)
            .collect();
    if !missing.is_empty() {
        install(&missing)?;
    }
    let nginx = find("nginx").context("nginx was installed but is not to be found")?;
    let wrk = find("wrk").context("wrk was installed but is not to be found")?;
    let h2load = find("h2load").context("h2load was installed but is not to be found")?;
    let build = words_of(&nginx, "-V")?;
    if !build.contains("--with-http_auth_request_module") {
        bail!(
            "{} was built without ngx_http_auth_request_module; install the package \
             {NGINX_PACKAGE}",
            nginx.display()
        );
    }
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let wrk_line = first_line(&words_of(&wrk, "-v")?);
    Ok(Peers {
        nginx,
        h2load,
        nginx_version: first_line(&build).replace("nginx version: ", ""),
        wrk,
        wrk_version: wrk_line.split(" [").next().unwrap_or_default().to_owned(),
    })
}

/// Looks in the search path, and where system daemons are: an ordinary user's path lacks it.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

fn install(packages: &[&str]) -> Result<()> {
    let command = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if !rustix::process::geteuid().is_root() || find("apt-get").is_none() {
        bail!("{} missing; install with: sudo {command}", packages.join(" and "));
    }
    eprintln!("{command}");
    let installed = Command::new("apt-get")
        .args(["install", "-y", "--no-install-recommends"])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(std::io::stderr())
        .status()
        .context("running apt-get")?;
    if !installed.success() {
        bail!("{command} failed; run apt-get update, then try again");
    }
    Ok(())
}

/// What a program says of itself. Its exit code is not asked for: `wrk -v` fails.
fn words_of(program: &Path, flag: &str) -> Result<String> {
    let output = Command::new(program)
        .arg(flag)
        .output()
        .with_context(|| format!("running {}", program.display()))?;
    let words = [output.stderr, output.stdout].concat();
    Ok(String::from_utf8_lossy(&words).into_owned())
}
