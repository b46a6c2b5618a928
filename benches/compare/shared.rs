//! Several gateways on one PostgreSQL and one etcd: what of this a write pays for, how fast marks are
//! raised, and how long a handover from one gateway to another takes.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sqlx::{Connection, PgConnection};

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
    /// Starts all of it, the gateways on these cores.
    pub(crate) fn start(lab: &Lab<'_>, cores: &str) -> Result<Cluster> {
        let database = Postgres::start_with("max_connections = 120\n");
        let etcd = Etcd::single();
        let backing = Backing {
            store: database.url(),
            coordinator: format!("etcd://{}", etcd.endpoints().join(",")),
        };
        let gateways =
            (0..3).map(|_| Gateway::start_on(cores, lab, &backing)).collect::<Result<_>>()?;
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
    // Nobody's CPU time is measured here, and nobody would give all of these one core.
    lab.cores.spread_out()?;
    let cluster = Cluster::start(lab, &lab.cores.all)?;
    if options.wants(Row::SharedRaises) || options.wants(Row::Pgbench) {
        raise_in_parallel(lab, &cluster, rounds, table)?;
    }
    if options.wants(Row::RaiseLatency) {
        raise_one_by_one(lab, &cluster, table)?;
    }
    if options.wants(Row::Takeover) {
        take_over(lab, &cluster, table)?;
    }
    drop(cluster);
    lab.cores.leave_the_proxy_alone()
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

/// What a write pays for its token's being new: more than asking etcd and committing once? All of it in turn, each
/// after an acquisition: a server that was asked a moment ago answers in half the time.
fn raise_one_by_one(lab: &Lab<'_>, cluster: &Cluster, table: &mut Table) -> Result<()> {
    let gateway = &cluster.gateways[0];
    let turns = lab.block_on(async {
        let mut leases = Client::connect(gateway.leases).await?;
        let mut proxy = Client::connect(gateway.proxy).await?;
        let mut etcd = etcd_client::Client::connect(cluster.etcd.endpoints(), None).await?;
        let mut database = PgConnection::connect(&cluster.database.url()).await?;
        sqlx::raw_sql("CREATE TABLE committed (token bigint); INSERT INTO committed VALUES (0)")
            .execute(&mut database)
            .await?;
        let path = gateway::held_path("raised");
        let mut turns = Vec::new();
        for _ in 0..TIMES {
            let token = gateway::acquire(&mut leases, "raised").await?;
            let first = timed(lab, gateway::put(&mut proxy, &path, token)).await?;
            let next = timed(lab, gateway::put(&mut proxy, &path, token)).await?;
            gateway::acquire(&mut leases, "raised").await?;
            let read = timed(lab, etcd.get("/fencegate/leases/held-raised", None)).await?;
            let update = sqlx::query("UPDATE committed SET token = token + 1");
            let commit = timed(lab, update.execute(&mut database)).await?;
            turns.push([first, next, read, commit]);
        }
        anyhow::Ok(turns)
    })?;
    let beyond = turns.iter().map(|[first, next, read, commit]| first - next - read - commit);
    let what = "ms of a raise beyond one read and one commit";
    table.judge(Row::RaiseLatency, what, Spread::of(beyond));
    let names = ["first write of a token", "next write of it", "linearizable read", "commit"];
    for (place, name) in names.iter().enumerate() {
        table.explain(format!("ms, {name}"), Spread::of(turns.iter().map(|turn| turn[place])));
    }
    Ok(())
}

/// How long it took, in milliseconds, if it went well.
async fn timed<T, E>(lab: &Lab<'_>, work: impl Future<Output = Result<T, E>>) -> Result<f64, E> {
    let begin = lab.clock.now();
    work.await?;
    Ok(millis(lab.clock.now().since(begin)))
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

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
