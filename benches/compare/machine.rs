//! What the figures were taken on, and which of its cores do what.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::peers::Peers;

/// Which cores do what, as `taskset` takes them.
///
/// The proxy has a core for itself: its peers then cannot take CPU from it, nor warm or cool its
/// caches.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    /// For the process that is measured.
    pub(crate) proxy: String,
    /// For the load generator, the upstream and this process.
    pub(crate) load: String,
    /// All of them, where it is not the CPU time of one process that is measured.
    pub(crate) all: String,
}

impl Cores {
    /// Splits the cores that this process may run on.
    pub(crate) fn split() -> Result<Cores> {
        let status =
            fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .context("/proc/self/status has no Cpus_allowed_list; this benchmark needs Linux")?;
        let mut cores = expand(allowed.trim())?;
        let list = |cores: &[u32]| cores.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let all = list(&cores);
        match (cores.pop(), cores.as_slice()) {
            (Some(proxy), [_, ..]) => {
                Ok(Cores { proxy: proxy.to_string(), load: list(&cores), all })
            }
            _ => bail!("two cores are needed: one for the proxy, one for load and upstream"),
        }
    }

    /// Moves this process off the proxy's core, and with it what it starts later.
    pub(crate) fn leave_the_proxy_alone(&self) -> Result<()> {
        move_self(&self.load)
    }

    /// Lets this process, and what it starts later, run on all cores.
    pub(crate) fn spread_out(&self) -> Result<()> {
        move_self(&self.all)
    }
}

fn move_self(cores: &str) -> Result<()> {
    let pid = std::process::id().to_string();
    let moved = Command::new("taskset")
        .args(["-a", "-p", "-c", cores, &pid])
        .output()
        .context("running taskset; install util-linux")?;
    if !moved.status.success() {
        bail!("taskset: {}", String::from_utf8_lossy(&moved.stderr).trim());
    }
    Ok(())
}

/// `0-2,5` as numbers.
fn expand(list: &str) -> Result<Vec<u32>> {
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let parse = |text: &str| text.parse::<u32>().with_context(|| format!("cores {list:?}"));
        cores.extend(parse(first)?..=parse(last)?);
    }
    Ok(cores)
}

/// Kernel, CPU, peers and commit, for whoever reads the table later.
pub(crate) fn describe(peers: &Peers, quick: bool) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |line: &str| Some(line.strip_prefix("model name")?.split_once(": ")?.1.to_owned());
    let models: Vec<String> = cpus.lines().filter_map(field).collect();
    let model = models.first().map_or("unknown", String::as_str);
    let mut text = format!(
        "kernel {} · {} × {model}\n{} · {}\nfencegate {} at commit {}",
        kernel.trim(),
        models.len(),
        peers.nginx_version,
        peers.wrk_version,
        env!("CARGO_PKG_VERSION"),
        commit(),
    );
    if cfg!(debug_assertions) {
        text.push_str("\nbuilt without optimisation: these figures say nothing of Fencegate");
    }
    if quick {
        text.push_str("\n--quick: too few slices to quote");
    }
    text
}

fn commit() -> String {
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match described {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}
