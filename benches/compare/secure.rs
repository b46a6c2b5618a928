//! The rows about TLS and HTTP/2: the fenced write of the other rows, and nginx in the same role.

use std::fs;
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail};
use fencegate::fence::Token;
use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::gateway::{self, Gateway};
use crate::lab::Lab;
use crate::process::Server;
use crate::requests::{cpu, explain};
use crate::rows::Row;
use crate::slices::{Competitor, Load, take_turns};
use crate::stats::Spread;
use crate::table::Table;
use crate::{Options, h2load, nginx};

const CONNECTIONS: [u32; 2] = [16, 64];

/// Measures those of the rows that are wanted.
pub(crate) fn measure(
    lab: &Lab<'_>,
    options: &Options,
    rounds: usize,
    table: &mut Table,
) -> Result<()> {
    let rows = [(Row::Tls, "TLS", true), (Row::Http2, "HTTP/2", false)];
    for (row, what, over_tls) in rows.into_iter().filter(|(row, ..)| options.wants(*row)) {
        let (listen, peer) = if over_tls { certified(lab)? } else { Default::default() };
        let backing = gateway::own_file(lab, row.name());
        let gateway = Gateway::listening(lab, &backing, &listen)?;
        let options = if over_tls { "ssl" } else { "http2" };
        let name = format!("nginx-{}", row.name());
        let (mut server, target) = nginx::proxy_with(
            lab.peers,
            &lab.cores,
            lab.directory(),
            &name,
            lab.upstream,
            (options, &peer),
        )?;
        wait_for(&mut server, target, lab)?;
        // On the route that takes any higher token, so that no lease has to be kept.
        let path = gateway::ordered_path("a");
        let load = Load::H2load(h2load::Writes { path, token: Token::MAX, over_tls });
        let competitor = |name, target, server| Competitor {
            name,
            target,
            load: load.clone(),
            servers: vec![server],
        };
        let names = if over_tls { ["tls", "nginx-tls"] } else { ["http2", "nginx-http2"] };
        let competitors = [
            competitor(names[0], gateway.proxy, &gateway.server),
            competitor(names[1], target, &server),
        ];
        for connections in CONNECTIONS {
            let slices = take_turns(lab, &competitors, connections, rounds)?;
            let [ours, theirs] = slices.as_slice() else { bail!("two had turns") };
            let what = format!("CPU/request, fenced / nginx, {what}, {connections} conn");
            table.judge(row, what, Spread::of_ratios(ours, theirs, cpu));
            for (competitor, slices) in competitors.iter().zip(&slices) {
                explain(table, competitor.name, connections, slices);
            }
        }
    }
    Ok(())
}

/// Makes a certificate, and gives the keys of `[listen]` and nginx's directives that name it.
fn certified(lab: &Lab<'_>) -> Result<(String, String)> {
    let names = vec!["127.0.0.1".to_owned()];
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(names).context("making a certificate")?;
    let [cert_file, key_file] = ["bench.crt", "bench.key"].map(|name| lab.directory().join(name));
    fs::write(&cert_file, cert.pem())?;
    fs::write(&key_file, signing_key.serialize_pem())?;
    let listen = format!("proxy_cert_file = {cert_file:?}\nproxy_key_file = {key_file:?}\n");
    let (cert, key) = (cert_file.display(), key_file.display());
    Ok((listen, format!("ssl_certificate {cert}; ssl_certificate_key {key};")))
}

/// It answers nothing that a plain client of HTTP/1.1 could ask.
fn wait_for(server: &mut Server, target: SocketAddr, lab: &Lab<'_>) -> Result<()> {
    let deadline = lab.clock.now() + std::time::Duration::from_secs(60);
    while TcpStream::connect(target).is_err() {
        server.check_alive()?;
        if lab.clock.now() > deadline {
            bail!("{target} does not listen");
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}
