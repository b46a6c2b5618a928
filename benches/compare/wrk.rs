//! The load generator: wrk with one thread, and a script that says what to send and reports.
//!
//! wrk is closed-loop: each connection sends its next request when the last was answered. So the
//! slower proxy gets fewer requests, and latency is latency at saturation. CPU per request is
//! sound either way.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fencegate::fence::Token;

use crate::lab::Lab;
use crate::process::{pinned, run_to_end};

const BODY_BYTES: usize = 256;
/// What wrk may take beyond the slice: connecting, and waiting for the last answers.
const SLACK: Duration = Duration::from_secs(30);

/// What one run of wrk reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) requests: f64,
    pub(crate) seconds: f64,
    pub(crate) p99_ms: f64,
}

/// Writes the script that sends a PUT to each of the paths in turn.
pub(crate) fn script(lab: &Lab<'_>, name: &str, writes: &[(String, Token)]) -> Result<PathBuf> {
    let mut text = String::from("wrk.method = \"PUT\"\n");
    writeln!(text, "wrk.body = string.rep(\"x\", {BODY_BYTES})")?;
    match writes {
        // Without a request function wrk formats once and spends nothing on Lua.
        [(path, token)] => {
            writeln!(text, "wrk.path = \"{path}\"\nwrk.headers[\"Fencing-Token\"] = \"{token}\"")?;
        }
        writes => {
            text.push_str("local writes = {\n");
            for (path, token) in writes {
                writeln!(text, "{{\"{path}\", \"{token}\"}},")?;
            }
            text.push_str(MANY);
        }
    }
    text.push_str(DONE);
    let path = lab.directory().join(format!("{name}.lua"));
    fs::write(&path, text)?;
    Ok(path)
}

const MANY: &str = r#"}
local ready, turn = {}, 0
function init()
  for i, write in ipairs(writes) do
    ready[i] = wrk.format(nil, write[1], {["Fencing-Token"] = write[2]}, nil)
  end
end
function request()
  turn = turn % #ready + 1
  return ready[turn]
end
"#;

const DONE: &str = r#"
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format("REPORT %d %d %d %d %d %d %d %d\n",
    summary.requests, summary.duration, latency:percentile(99),
    errors.status, errors.connect, errors.read, errors.write, errors.timeout))
end
"#;

/// Runs wrk for one slice. A refused request or a broken connection is an error: a slice with
/// either measures something else.
pub(crate) fn run(
    lab: &Lab<'_>,
    target: SocketAddr,
    script: &Path,
    connections: u32,
    slice: Duration,
) -> Result<Report> {
    let mut command = pinned(&lab.cores.load, &lab.peers.wrk);
    command
        .args(["-t1", &format!("-c{connections}"), &format!("-d{}s", slice.as_secs())])
        .arg("-s")
        .arg(script)
        .arg(format!("http://{target}"));
    let output = run_to_end(command, slice + SLACK).context("wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report = text.lines().find_map(|line| line.strip_prefix("REPORT "));
    let numbers = report.map(|line| line.split(' ').map(str::parse).collect());
    let Some(Ok::<Vec<f64>, _>(numbers)) = numbers else {
        bail!("wrk did not report: {text}{}", String::from_utf8_lossy(&output.stderr));
    };
    let [requests, micros, p99_micros, errors @ ..] = numbers.as_slice() else {
        bail!("wrk reported too little: {text}");
    };
    if *requests == 0.0 || errors.iter().any(|count| *count > 0.0) {
        bail!(
            "{requests} requests, errors {errors:?} (status, connect, read, write, timeout): {text}"
        );
    }
    Ok(Report { requests: *requests, seconds: micros / 1e6, p99_ms: p99_micros / 1e3 })
}
