//! All parts but the workers, with a link between every two of them, and what a strike does to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::api::{Api, SLOWEST};
use super::gateway::Gateway;
use super::link::{Link, Network, Weather};
use super::plan::{Between, Blow, LONGEST_HOLD_BEFORE_API, Shape, Strike, Victim};
use super::wait_until;

/// What the gateways are told of the API.
const SETTLE: Duration = Duration::from_millis(3000);
const _: () = assert!(
    SLOWEST.as_millis() + LONGEST_HOLD_BEFORE_API.as_millis() + 1000 < SETTLE.as_millis(),
    "the API must be done with a write, as slow as it and its link are, in less than the settle time"
);

/// See the module. Ends all its processes when dropped.
pub struct Arena {
    gateways: Vec<Gateway>,
    /// One from each gateway.
    to_api: Vec<Link>,
    _api: Api,
    _network: Network,
    dir: TempDir,
}

impl Arena {
    /// Starts everything, and waits until all of it serves.
    pub fn start(shape: Shape, seed: u64) -> Arena {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let network = Network::start();
        let api = Api::start(dir.path(), seed);
        let to_api: Vec<_> = (0..shape.gateways).map(|_| network.link_to(api.address)).collect();
        let gateways = to_api.iter().enumerate();
        let gateways = gateways.map(|(number, to_api)| {
            let dir = dir.path().join(format!("gateway{number}"));
            let config = config(&dir, to_api);
            Gateway::new(dir, &network, &config)
        });
        let gateways = gateways.collect();
        let mut arena = Arena { gateways, to_api, _api: api, _network: network, dir };
        wait_until("all gateways listen", || {
            arena.tend();
            arena.gateways.iter().all(Gateway::is_listening)
        });
        arena
    }

    /// Where the record and the notes are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn gateways(&self) -> &[Gateway] {
        &self.gateways
    }

    /// What has to be done again and again.
    pub fn tend(&mut self) {
        self.gateways.iter_mut().for_each(Gateway::tend);
    }

    /// Strikes anything but a worker. Links recover, and killed gateways start again, by themselves; for the
    /// rest there is [`Arena::heal`]. `false`: there was nothing to strike.
    pub fn strike(&mut self, strike: &Strike) -> bool {
        let lasts = strike.lasts;
        match (strike.victim, strike.blow) {
            (Victim::Gateway(gateway), Blow::Kill) => self.gateways[gateway].kill(lasts),
            (Victim::Gateway(gateway), _) => self.gateways[gateway].signal(Signal::STOP),
            (Victim::Link(between), blow) => {
                let weather = match blow {
                    Blow::Hold => Weather::Held,
                    Blow::Swallow => Weather::Swallowed,
                    _ => Weather::Cut,
                };
                self.link(between).turn(weather, lasts);
                true
            }
            (Victim::Etcd(_) | Victim::Database | Victim::Worker(..), _) => false,
        }
    }

    /// Ends what a strike began.
    pub fn heal(&mut self, strike: &Strike) {
        match (strike.victim, strike.blow) {
            (Victim::Gateway(gateway), Blow::Suspend) => {
                self.gateways[gateway].signal(Signal::CONT);
            }
            (
                Victim::Gateway(_)
                | Victim::Link(_)
                | Victim::Etcd(_)
                | Victim::Database
                | Victim::Worker(..),
                _,
            ) => {}
        }
    }

    /// What was wrong that nobody caused.
    pub fn faults(&self) -> Vec<String> {
        self.gateways.iter().flat_map(Gateway::faults).collect()
    }

    /// Keeps record, notes and logs, for people.
    pub fn keep(mut self) -> PathBuf {
        self.dir.disable_cleanup(true);
        self.dir.path().to_owned()
    }

    fn link(&self, between: Between) -> &Link {
        match between {
            Between::WorkersAndGateway(gateway) => &self.gateways[gateway].proxy,
            Between::WorkersAndLeases(gateway) => &self.gateways[gateway].leases,
            Between::GatewayAndApi(gateway) => &self.to_api[gateway],
            Between::GatewayAndEtcd(..)
            | Between::GatewayAndDatabase(_)
            | Between::EtcdAndOthers(_) => unreachable!("not in this shape"),
        }
    }
}

fn config(dir: &Path, to_api: &Link) -> String {
    let store = dir.join("fencegate.db");
    format!(
        "[store]
url = \"sqlite:{}\"

[[upstream]]
name = \"api\"
url = \"http://{}\"
timeout = \"2500ms\"
settle = \"{}ms\"

[[route]]
name = \"all\"
path = \"/{{*rest}}\"
drain = \"500ms\"
wait = \"10s\"
",
        store.display(),
        to_api.address,
        SETTLE.as_millis(),
    )
}
