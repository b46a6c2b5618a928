//! Who takes part: two gateways that share PostgreSQL and etcd, one that has SQLite to itself, and their API.

use crate::servers::etcd::Etcd;
use crate::servers::free_port;
use crate::servers::postgres::{Postgres, url_at};
use crate::support::certificates::{Authority, Pair};
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::wire::Wire;

/// Longer than the test.
pub const LONG_MS: u64 = 3_600_000;
/// The resource whose story the second dashboard tells.
pub const STORY: &str = "account:7";
/// Writes that may wait on one resource.
pub const WAITERS: usize = 8;

pub struct Cast {
    pub api: Downstream,
    pub etcd: Etcd,
    pub one: Gateway,
    /// Reaches its store by a wire that can be led elsewhere.
    pub two: Gateway,
    pub wire: Wire,
    /// With a certificate of its own, which it shows to an upstream.
    pub alone: Gateway,
    /// Its files go with it.
    _authority: Authority,
    pub database: Postgres,
}

impl Cast {
    pub fn start() -> Cast {
        let (api, etcd, database) = (Downstream::start(), Etcd::single(), Postgres::start());
        let wire = Wire::to(database.port());
        let coordinator = format!("etcd://{}", etcd.endpoints().join(","));
        let routes = routes(&api);
        let start = |port: u16| {
            let store = format!("url = \"{}\"\ninstance_ttl = \"6s\"", url_at(port));
            let config = format!("[coordinator]\nurl = \"{coordinator}\"\n{routes}");
            let mut gateway = Gateway::with_tables(&store, &config);
            gateway.start();
            gateway
        };
        let (one, two) = (start(database.port()), start(wire.port));
        let authority = Authority::new();
        let Pair { cert, key } = authority.sign("alone");
        let vault = format!(
            "[[upstream]]\nname = \"vault\"\nurl = \"https://127.0.0.1:9\"\nca_file = {:?}\n\
             cert_file = {cert:?}\nkey_file = {key:?}\n",
            authority.ca()
        );
        let alone = Gateway::with_config(&format!("{vault}{routes}"));
        Cast { api, etcd, one, two, wire, alone, _authority: authority, database }
    }

    pub fn gateways(&self) -> [&Gateway; 3] {
        [&self.one, &self.two, &self.alone]
    }
}

/// A route for each thing that can happen, so that each dashboard has something to tell apart.
fn routes(api: &Downstream) -> String {
    let (api, nobody) = (api.address, free_port());
    let route = |name: &str, rest: &str| {
        format!(
            "[[route]]\nname = \"{name}\"\npath = \"/{name}/{{*rest}}\"\ndrain = \"1s\"\n{rest}\n"
        )
    };
    [
        format!("[[upstream]]\nname = \"ledger\"\nurl = \"http://{api}\"\ntimeout = \"3s\"\nsettle = \"2s\"\n"),
        format!("[[upstream]]\nname = \"archive\"\nurl = \"http://127.0.0.1:{nobody}\"\n"),
        "[[route]]\nname = \"accounts\"\npath = \"/accounts/{account}\"\nresource = \"account:{account}\"\n\
         upstream = \"ledger\"\ndrain = \"1s\"\n"
            .to_owned(),
        route("invoices", "upstream = \"ledger\""),
        route("impatient", "upstream = \"ledger\"\nwait = \"300ms\""),
        route("reports", "upstream = \"ledger\"\nmode = \"observe\""),
        route("imports", "upstream = \"ledger\"\ntokens = \"ordered\""),
        route("archive", "upstream = \"archive\""),
        format!("[limits]\nwaiters = {WAITERS}\n[metrics]\nresources = [\"{STORY}\"]\n"),
    ]
    .concat()
}
