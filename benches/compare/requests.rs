//! The rows about one request: CPU time and latency of a write whose token holds a grant.
//!
//! All of them come from the same slices, so that every ratio is of neighbours.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fencegate::fence::Token;

use crate::client::Client;
use crate::gateway::{self, Backing, Gateway};
use crate::lab::Lab;
use crate::process::Server;
use crate::rows::Row;
use crate::shared::Cluster;
use crate::slices::{Competitor, Load, Slice, take_turns};
use crate::stats::Spread;
use crate::table::Table;
use crate::{Options, check, nginx, wrk};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Nginx,
    NginxAgain,
    Fenced,
    Unfenced,
    Asking,
    Limited,
    Credentialed,
    Shared,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Role::Nginx => "nginx",
            Role::NginxAgain => "nginx-again",
            Role::Fenced => "fenced",
            Role::Unfenced => "unfenced",
            Role::Asking => "auth_request",
            Role::Limited => "limited",
            Role::Credentialed => "credentialed",
            Role::Shared => "shared",
        }
    }
}

/// One row: whose figure is divided by whose.
struct Comparison {
    row: Row,
    what: &'static str,
    ours: Role,
    theirs: Role,
    connections: &'static [u32],
    figure: fn(&Slice) -> f64,
}

const CONNECTIONS: [u32; 3] = [1, 16, 64];

const COMPARISONS: [Comparison; 8] = [
    Comparison {
        row: Row::Harness,
        what: "CPU/request, nginx / nginx",
        ours: Role::NginxAgain,
        theirs: Role::Nginx,
        connections: &CONNECTIONS,
        figure: cpu,
    },
    Comparison {
        row: Row::Nginx,
        what: "CPU/request, fenced / nginx",
        ours: Role::Fenced,
        theirs: Role::Nginx,
        connections: &CONNECTIONS,
        figure: cpu,
    },
    Comparison {
        row: Row::Unfenced,
        what: "CPU/request, fenced / unfenced",
        ours: Role::Fenced,
        theirs: Role::Unfenced,
        connections: &CONNECTIONS,
        figure: cpu,
    },
    Comparison {
        row: Row::Auth,
        what: "CPU/request, fenced / auth_request",
        ours: Role::Fenced,
        theirs: Role::Asking,
        connections: &CONNECTIONS,
        figure: cpu,
    },
    Comparison {
        row: Row::Limits,
        what: "CPU/request, with limits / without",
        ours: Role::Limited,
        theirs: Role::Fenced,
        connections: &CONNECTIONS,
        figure: cpu,
    },
    Comparison {
        row: Row::Credential,
        what: "CPU/request, with a credential / without",
        ours: Role::Credentialed,
        theirs: Role::Fenced,
        connections: &CONNECTIONS,
        figure: cpu,
    },
    Comparison {
        row: Row::Shared,
        what: "CPU/request, shared store / own file",
        ours: Role::Shared,
        theirs: Role::Fenced,
        connections: &CONNECTIONS,
        figure: cpu,
    },
    Comparison {
        row: Row::Latency,
        what: "p99 latency, fenced / nginx",
        ours: Role::Fenced,
        theirs: Role::Nginx,
        connections: &[16],
        figure: |slice| slice.p99_ms,
    },
];

pub(crate) fn cpu(slice: &Slice) -> f64 {
    slice.cpu_micros_per_request
}

/// Measures those of the rows that are wanted.
pub(crate) fn measure(
    lab: &Lab<'_>,
    options: &Options,
    rounds: usize,
    table: &mut Table,
) -> Result<()> {
    let wanted: Vec<&Comparison> =
        COMPARISONS.iter().filter(|comparison| options.wants(comparison.row)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let field = Field::open(lab, &roles(&wanted), options.paths)?;
    for connections in CONNECTIONS {
        let at_level = |comparison: &&&Comparison| comparison.connections.contains(&connections);
        let wanted: Vec<&Comparison> = wanted.iter().filter(at_level).copied().collect();
        if !wanted.is_empty() {
            measure_level(lab, &field, &wanted, connections, rounds, table)?;
        }
    }
    Ok(())
}

fn measure_level(
    lab: &Lab<'_>,
    field: &Field,
    wanted: &[&Comparison],
    connections: u32,
    rounds: usize,
    table: &mut Table,
) -> Result<()> {
    let roles = roles(wanted);
    let competitors =
        roles.iter().map(|role| field.competitor(*role)).collect::<Result<Vec<_>>>()?;
    let slices = take_turns(lab, &competitors, connections, rounds)?;
    for comparison in wanted {
        let of = |role| {
            let mut pairs = roles.iter().zip(&slices);
            pairs.find_map(|(known, slices)| (*known == role).then_some(slices.as_slice()))
        };
        let (ours, theirs) = (of(comparison.ours), of(comparison.theirs));
        let (ours, theirs) = ours.zip(theirs).context("a comparison lacks one of its sides")?;
        let what = format!("{}, {connections} conn", comparison.what);
        table.judge(comparison.row, what, Spread::of_ratios(ours, theirs, comparison.figure));
    }
    for (competitor, slices) in competitors.iter().zip(&slices) {
        explain(table, competitor.name, connections, slices);
    }
    Ok(())
}

/// Who takes part.
fn roles(wanted: &[&Comparison]) -> Vec<Role> {
    let mut roles = Vec::new();
    for role in wanted.iter().flat_map(|comparison| [comparison.ours, comparison.theirs]) {
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    roles
}

pub(crate) fn explain(table: &mut Table, name: &'static str, connections: u32, slices: &[Slice]) {
    let mut line = |unit: &str, figure: fn(&Slice) -> f64| {
        let what = format!("{name}, {connections} conn: {unit}");
        table.explain(what, Spread::of(slices.iter().map(figure)));
    };
    line("CPU µs/request", cpu);
    line("requests/s", |slice| slice.requests_per_second);
    line("p99 ms", |slice| slice.p99_ms);
}

/// Starts a gateway that differs from the usual one.
type Start = fn(&Lab<'_>, &Backing) -> Result<Gateway>;

/// Everything that runs at the same time for these rows.
struct Field {
    runners: Vec<Runner>,
    servers: Vec<Server>,
    /// What the gateways with a shared store run on.
    cluster: Option<Cluster>,
}

struct Runner {
    role: Role,
    target: SocketAddr,
    script: PathBuf,
    /// Places in [`Field::servers`]; the two routes of one gateway share theirs.
    servers: Range<usize>,
}

impl Field {
    fn open(lab: &Lab<'_>, roles: &[Role], paths: u32) -> Result<Field> {
        let has = |role| roles.contains(&role);
        let mut field = Field { runners: Vec::new(), servers: Vec::new(), cluster: None };
        let ids: Vec<String> = (0..paths).map(|id| id.to_string()).collect();
        let mut tokens = vec![Token::MAX; ids.len()];
        let script = |name: &str, path: fn(&str) -> String, tokens: &[Token]| {
            let writes: Vec<(String, Token)> =
                ids.iter().map(|id| path(id)).zip(tokens.iter().copied()).collect();
            wrk::script(lab, name, &writes)
        };
        if has(Role::Fenced) || has(Role::Unfenced) {
            let Gateway { server, proxy, leases, .. } =
                Gateway::start(lab, &gateway::own_file(lab, "requests"))?;
            tokens = lab.block_on(take_leases(leases, proxy, &ids))?;
            let fenced = script("fenced", gateway::held_path, &tokens)?;
            let unfenced = script("unfenced", gateway::unfenced_path, &tokens)?;
            let servers = field.keep([server]);
            field.enter(Role::Fenced, proxy, fenced, servers.clone());
            field.enter(Role::Unfenced, proxy, unfenced, servers);
        }
        let special: [(Role, Start); 2] = [
            (Role::Limited, Gateway::start_limited),
            (Role::Credentialed, Gateway::start_credentialed),
        ];
        for (role, start) in special.into_iter().filter(|(role, _)| has(*role)) {
            let Gateway { server, proxy, leases, .. } =
                start(lab, &gateway::own_file(lab, role.name()))?;
            let tokens = lab.block_on(take_leases(leases, proxy, &ids))?;
            let writes = script(role.name(), gateway::held_path, &tokens)?;
            let servers = field.keep([server]);
            field.enter(role, proxy, writes, servers);
        }
        if has(Role::Shared) {
            let mut cluster = Cluster::start(lab, &lab.cores.proxy)?;
            // The others run on the same core, as idle as gateways are.
            let Gateway { server, proxy, leases, .. } = cluster.gateways.remove(0);
            let tokens = lab.block_on(take_leases(leases, proxy, &ids))?;
            let shared = script("shared", gateway::held_path, &tokens)?;
            let servers = field.keep([server]);
            field.enter(Role::Shared, proxy, shared, servers);
            field.cluster = Some(cluster);
        }
        // The peers get the very bytes that the fenced route gets.
        let same = script("peers", gateway::held_path, &tokens)?;
        let (peers, cores, directory) = (lab.peers, &lab.cores, lab.directory());
        for role in [Role::Nginx, Role::NginxAgain].into_iter().filter(|role| has(*role)) {
            let (server, target) =
                nginx::plain_proxy(peers, cores, directory, role.name(), lab.upstream)?;
            let servers = field.keep([server]);
            field.enter(role, target, same.clone(), servers);
        }
        if has(Role::Asking) {
            let (service, check) = check::start(cores, directory)?;
            let (proxy, target) =
                nginx::asking_proxy(peers, cores, directory, lab.upstream, check)?;
            let servers = field.keep([service, proxy]);
            field.enter(Role::Asking, target, same, servers);
        }
        field.wait(lab)?;
        Ok(field)
    }

    /// Keeps servers running, and answers their places.
    fn keep<const N: usize>(&mut self, servers: [Server; N]) -> Range<usize> {
        let first = self.servers.len();
        self.servers.extend(servers);
        first..first + N
    }

    fn enter(&mut self, role: Role, target: SocketAddr, script: PathBuf, servers: Range<usize>) {
        self.runners.push(Runner { role, target, script, servers });
    }

    /// Waits until all answer, whatever they answer.
    fn wait(&mut self, lab: &Lab<'_>) -> Result<()> {
        for runner in &self.runners {
            for server in &mut self.servers[runner.servers.clone()] {
                lab.wait_for_answer(server, runner.target, "/", |_| true)?;
            }
        }
        Ok(())
    }

    fn competitor(&self, role: Role) -> Result<Competitor<'_>> {
        let runner = self.runners.iter().find(|runner| runner.role == role);
        let runner = runner.with_context(|| format!("{} was not started", role.name()))?;
        Ok(Competitor {
            name: role.name(),
            target: runner.target,
            load: Load::Wrk(runner.script.clone()),
            servers: self.servers[runner.servers.clone()].iter().collect(),
        })
    }
}

/// Takes a lease for each resource and writes once, so that each token holds a grant: from then on
/// the end of the lease changes nothing, as long as nobody takes a newer one.
async fn take_leases(leases: SocketAddr, proxy: SocketAddr, ids: &[String]) -> Result<Vec<Token>> {
    let (mut leases, mut proxy) = (Client::connect(leases).await?, Client::connect(proxy).await?);
    let mut tokens = Vec::with_capacity(ids.len());
    for id in ids {
        let token = gateway::acquire(&mut leases, id).await?;
        gateway::put(&mut proxy, &gateway::held_path(id), token).await?;
        tokens.push(token);
    }
    Ok(tokens)
}
