//! Several gateways on one PostgreSQL and one etcd: what of this a write pays for, how fast marks are
//! raised, and how long a handover from one gateway to another takes.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::Options;
use crate::client::Client;
use crate::gateway::{self, Backing, Gateway};
use crate::lab::Lab;
use crate::process::run_to_end;
use crate::raises::{self, Kind, Target};
use crate::rows::Row;
use crate::servers::etcd::Etcd;
use crate::servers::postgres::Postgres;
use crate::stats::Spread;
use crate::table::Table;

/// Resources that are raised in parallel, and clients of pgbench.
const PARALLEL: usize = 64;
/// Handovers, raises, reads and commits that a latency is the median of.
const TIMES: u32 = 200;
const PGBENCH: &str = "/usr/lib/postgresql/15/bin/pgbench";
/// What a gateway built at home would do for each raise.
const UPSERT: &str = "INSERT INTO upserted VALUES (:client_id, nextval('upserts'))
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token
    WHERE excluded.token > upserted.token;
";

/// Three gateways, and what they share.
pub(crate) struct Cluster {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) database: Postgres,
    etcd: Etcd,
}

impl Cluster {
    /// Starts all of it. Only the gateways run on the core of those that are measured.
    pub(crate) fn start(lab: &Lab<'_>) -> Result<Cluster> {
        let database = Postgres::start_with("max_connections = 120\n");
        let etcd = Etcd::single();
        let backing = Backing {
            store: database.url(),
            coordinator: format!("etcd://{}", etcd.endpoints().join(",")),
        };
        let gateways = (0..3).map(|_| Gateway::start(lab, &backing)).collect::<Result<_>>()?;
        Ok(Cluster { gateways, database, etcd })
    }
}

/// Measures those of the rows that are wanted.
pub(crate) fn measure(
    lab: &Lab<'_>,
    options: &Options,
    rounds: usize,
    table: &mut Table,
) -> Result<()> {
    let rows = [Row::SharedRaises, Row::Pgbench, Row::RaiseLatency, Row::Takeover];
    if !rows.into_iter().any(|row| options.wants(row)) {
        return Ok(());
    }
    let cluster = Cluster::start(lab)?;
    if options.wants(Row::SharedRaises) || options.wants(Row::Pgbench) {
        raise_in_parallel(lab, &cluster, rounds, table)?;
    }
    if options.wants(Row::RaiseLatency) {
        raise_one_by_one(lab, &cluster, table)?;
    }
    if options.wants(Row::Takeover) {
        take_over(lab, &cluster, table)?;
    }
    Ok(())
}

fn raise_in_parallel(
    lab: &Lab<'_>,
    cluster: &Cluster,
    rounds: usize,
    table: &mut Table,
) -> Result<()> {
    let gateway = &cluster.gateways[0];
    let target = Arc::new(Target::new(gateway.proxy, gateway.leases));
    cluster.database.sql(
        "CREATE TABLE upserted (resource int PRIMARY KEY, token bigint NOT NULL);
         CREATE SEQUENCE upserts",
    );
    let script = lab.directory().join("upsert.sql");
    std::fs::write(&script, UPSERT)?;
    let slice = |connections| raises::per_second(lab, &target, Kind::Ordered, connections);
    slice(PARALLEL)?;
    let (mut parallel, mut single, mut upserts) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        eprintln!("raises in PostgreSQL, round {} of {rounds}", round + 1);
        parallel.push(slice(PARALLEL)?);
        single.push(slice(1)?);
        upserts.push(upserts_per_second(&cluster.database, &script)?);
    }
    let ratio = |theirs: &[f64]| Spread::of_ratios(&parallel, theirs, |rate| *rate);
    let what = "PostgreSQL raises/s, 64 in parallel / 1";
    table.judge(Row::SharedRaises, what, ratio(&single));
    table.judge(Row::Pgbench, "raises/s, 64 in parallel / pgbench", ratio(&upserts));
    table.explain("PostgreSQL raises/s, 64 in parallel", Spread::of(parallel));
    table.explain("PostgreSQL raises/s, 1 at a time", Spread::of(single));
    table.explain("pgbench upserts/s, 64 clients", Spread::of(upserts));
    Ok(())
}

fn upserts_per_second(database: &Postgres, script: &std::path::Path) -> Result<f64> {
    let mut command = Command::new(PGBENCH);
    command.args(["--no-vacuum", "--protocol=prepared", "--client=64", "--jobs=2", "--time=1"]);
    command.args(["--host=127.0.0.1", "--username=fencegate", "--port"]);
    command.arg(database.port().to_string()).arg("--file").arg(script).arg("postgres");
    let output = run_to_end(command, Duration::from_secs(60))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
    let rate = rate.and_then(|rate| rate.parse().ok());
    rate.with_context(|| format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// What a write pays for its token's being new: more than asking etcd and committing once?
fn raise_one_by_one(lab: &Lab<'_>, cluster: &Cluster, table: &mut Table) -> Result<()> {
    let gateway = &cluster.gateways[0];
    let (first, again) = lab.block_on(async {
        let mut leases = Client::connect(gateway.leases).await?;
        let mut proxy = Client::connect(gateway.proxy).await?;
        let (mut first, mut again) = (Vec::new(), Vec::new());
        let path = gateway::held_path("raised");
        for _ in 0..TIMES {
            let token = gateway::acquire(&mut leases, "raised").await?;
            for times in [&mut first, &mut again] {
                let begin = lab.clock.now();
                gateway::put(&mut proxy, &path, token).await?;
                times.push(millis(lab.clock.now().since(begin)));
            }
        }
        Ok((first, again))
    })?;
    let reads = lab.block_on(reads(lab, &cluster.etcd))?;
    let commits = lab.block_on(commits(lab, &cluster.database))?;
    let medians = [&first, &again, &reads, &commits].map(|times| median(times));
    let [raised, plain, read, commit] = medians;
    let what = "ms of a raise beyond one read and one commit";
    table.judge(Row::RaiseLatency, what, Spread::of([raised - plain - read - commit]));
    table.explain("ms, first write of a token", Spread::of(first));
    table.explain("ms, next write of it", Spread::of(again));
    table.explain("ms, linearizable read of etcd", Spread::of(reads));
    table.explain("ms, commit of one row", Spread::of(commits));
    Ok(())
}

async fn reads(lab: &Lab<'_>, etcd: &Etcd) -> Result<Vec<f64>> {
    let mut client = etcd_client::Client::connect(etcd.endpoints(), None).await?;
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let begin = lab.clock.now();
        client.get("/fencegate/leases/held-raised", None).await?;
        times.push(millis(lab.clock.now().since(begin)));
    }
    Ok(times)
}

async fn commits(lab: &Lab<'_>, database: &Postgres) -> Result<Vec<f64>> {
    let mut connection = PgConnection::connect(&database.url()).await?;
    let statement = |sql: &'static str| sqlx::query(AssertSqlSafe(sql));
    statement("CREATE TABLE committed (token bigint)").execute(&mut connection).await?;
    statement("INSERT INTO committed VALUES (0)").execute(&mut connection).await?;
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let begin = lab.clock.now();
        statement("UPDATE committed SET token = token + 1").execute(&mut connection).await?;
        times.push(millis(lab.clock.now().since(begin)));
    }
    Ok(times)
}

/// From asking for the lease to the first accepted write, while another gateway has the grant of the
/// one before, whose worker has given its lease back.
fn take_over(lab: &Lab<'_>, cluster: &Cluster, table: &mut Table) -> Result<()> {
    let [one, two, ..] = cluster.gateways.as_slice() else { bail!("there are three gateways") };
    let times = lab.block_on(async {
        let mut clients = Vec::new();
        for gateway in [one, two] {
            let leases = Client::connect(gateway.leases).await?;
            clients.push((leases, Client::connect(gateway.proxy).await?));
        }
        let path = gateway::held_path("handed-over");
        let mut times = Vec::new();
        for turn in 0..TIMES as usize {
            let (leases, proxy) = &mut clients[turn % 2];
            let begin = lab.clock.now();
            let token = gateway::acquire(leases, "handed-over").await?;
            gateway::put(proxy, &path, token).await?;
            times.push(millis(lab.clock.now().since(begin)));
            gateway::release(leases, "handed-over", token).await?;
        }
        Ok(times)
    })?;
    table.judge(Row::Takeover, "ms from acquiring to the first write", Spread::of(times));
    Ok(())
}

fn median(times: &[f64]) -> f64 {
    Spread::of(times.iter().copied()).median
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
