//! All parts but the workers, with a link between every two of them, and what a strike does to them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::SOON;
use super::api::{Api, SLOWEST};
use super::database::Database;
use super::gateway::Gateway;
use super::link::{Link, Network, Weather};
use super::members::Members;
use super::plan::{Between, Blow, LONGEST_HOLD_BEFORE_API, Shape, Strike, Victim};

/// What the gateways are told of the API.
const SETTLE: Duration = Duration::from_millis(3000);
const _: () = assert!(
    SLOWEST.as_millis() + LONGEST_HOLD_BEFORE_API.as_millis() + 1000 < SETTLE.as_millis(),
    "the API must be done with a write, as slow as it and its link are, in less than the settle time"
);

/// Of an instance's lease in the store: shorter than what it is suspended for at times.
const INSTANCE_TTL: Duration = Duration::from_millis(3000);

/// See the module. Ends all its processes when dropped.
pub struct Arena {
    gateways: Vec<Gateway>,
    /// One from each gateway.
    to_api: Vec<Link>,
    members: Option<Members>,
    database: Option<Database>,
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
        let count = shape.gateways;
        let to_api: Vec<_> = (0..count).map(|_| network.link_to(api.address)).collect();
        let members = (shape.etcd_members > 0).then(|| Members::start(&network, count));
        let database = shape.has_database.then(|| Database::start(&network, count));
        let gateways = (0..count).map(|number| {
            let dir = dir.path().join(format!("gateway{number}"));
            let store = match &database {
                Some(database) => shared_store(&database.url(number)),
                None => format!("url = \"sqlite:{}\"", dir.join("fencegate.db").display()),
            };
            let coordinator = members.as_ref().map(|members| members.url(number));
            let config = config(&store, coordinator.as_deref(), to_api[number].address);
            Gateway::new(dir, &network, &config)
        });
        let gateways = gateways.collect();
        let mut arena =
            Arena { gateways, to_api, members, database, _api: api, _network: network, dir };
        arena.await_gateways();
        arena
    }

    fn await_gateways(&mut self) {
        let deadline = Instant::now() + SOON;
        while !self.gateways.iter().all(Gateway::is_listening) {
            let said = || self.gateways.iter().map(Gateway::last_words).collect::<String>();
            assert!(Instant::now() < deadline, "a gateway does not listen: {}", said());
            self.tend();
            thread::sleep(Duration::from_millis(20));
        }
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
        self.members.iter_mut().for_each(Members::tend);
    }

    /// Strikes anything but a worker. Links recover, and killed gateways start again, by themselves; for the
    /// rest there is [`Arena::heal`]. `false`: there was nothing to strike.
    pub fn strike(&mut self, strike: &Strike) -> bool {
        let Strike { blow, lasts, .. } = *strike;
        match strike.victim {
            Victim::Gateway(gateway) if blow == Blow::Kill => {
                return self.gateways[gateway].kill(lasts);
            }
            Victim::Gateway(gateway) => return self.gateways[gateway].signal(Signal::STOP),
            Victim::Etcd(member) => self.members().strike(member, blow),
            Victim::Database => match blow {
                Blow::FailOver => self.database().fail_over(),
                Blow::Usurp => self.database().usurp(),
                _ => self.database().suspend(),
            },
            Victim::Link(between) => self.link(between).turn(weather(blow), lasts),
            Victim::Worker(..) => return false,
        }
        true
    }

    /// Ends what a strike began.
    pub fn heal(&mut self, strike: &Strike) {
        match (strike.victim, strike.blow) {
            (Victim::Gateway(gateway), Blow::Suspend) => {
                self.gateways[gateway].signal(Signal::CONT);
            }
            (Victim::Etcd(member), blow) => self.members().heal(member, blow),
            (Victim::Database, Blow::Suspend) => self.database().resume(),
            (Victim::Database, Blow::Usurp) => self.database().wake_usurped(),
            (Victim::Gateway(_) | Victim::Link(_) | Victim::Database | Victim::Worker(..), _) => {}
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

    fn members(&mut self) -> &mut Members {
        self.members.as_mut().expect("the plan strikes what is there")
    }

    fn database(&mut self) -> &mut Database {
        self.database.as_mut().expect("the plan strikes what is there")
    }

    fn link(&mut self, between: Between) -> &Link {
        match between {
            Between::WorkersAndGateway(gateway) => &self.gateways[gateway].proxy,
            Between::WorkersAndLeases(gateway) => &self.gateways[gateway].leases,
            Between::GatewayAndApi(gateway) => &self.to_api[gateway],
            Between::GatewayAndEtcd(gateway, member) => self.members().link(gateway, member),
            Between::GatewayAndDatabase(gateway) => self.database().link(gateway),
            Between::EtcdAndOthers(member) => self.members().link_from_others(member),
        }
    }
}

fn weather(blow: Blow) -> Weather {
    match blow {
        Blow::Hold => Weather::Held,
        Blow::Swallow => Weather::Swallowed,
        Blow::Kill | Blow::Suspend | Blow::FailOver | Blow::Usurp | Blow::Cut => Weather::Cut,
    }
}

fn shared_store(url: &str) -> String {
    format!("url = \"{url}\"\ninstance_ttl = \"{}ms\"", INSTANCE_TTL.as_millis())
}

fn config(store: &str, coordinator: Option<&str>, api: SocketAddr) -> String {
    let coordinator = coordinator.unwrap_or("embedded");
    format!(
        "[store]
{store}

[coordinator]
url = \"{coordinator}\"

[[upstream]]
name = \"api\"
url = \"http://{api}\"
timeout = \"2500ms\"
settle = \"{}ms\"

[[route]]
name = \"all\"
path = \"/{{*rest}}\"
drain = \"500ms\"
wait = \"10s\"
",
        SETTLE.as_millis(),
    )
}
