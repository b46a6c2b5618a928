//! PostgreSQL: a primary and its synchronous standby, with a link from each gateway to whichever is primary.

use std::net::{Ipv4Addr, SocketAddr};

use super::link::{Link, Network};
use super::servers::postgres::{Postgres, url_at};

/// See the module.
pub struct Database {
    primary: Postgres,
    standby: Postgres,
    /// Was the primary, and does not know that it is no longer.
    usurped: Option<Postgres>,
    standbys: usize,
    links: Vec<Link>,
}

impl Database {
    pub fn start(network: &Network, gateways: usize) -> Database {
        let primary = Postgres::start();
        let standby = primary.standby("standby1");
        primary.wait_for(&["standby1"]);
        let links = (0..gateways).map(|_| network.link_to(address(&primary))).collect();
        Database { primary, standby, usurped: None, standbys: 1, links }
    }

    /// Where a gateway finds the primary.
    pub fn url(&self, gateway: usize) -> String {
        url_at(self.links[gateway].address.port())
    }

    pub fn link(&self, gateway: usize) -> &Link {
        &self.links[gateway]
    }

    /// Lets the primary stand still.
    pub fn suspend(&mut self) {
        self.primary.suspend();
    }

    /// Lets it go on.
    pub fn resume(&mut self) {
        self.primary.resume();
    }

    /// Kills the primary for good, and makes the standby the primary.
    pub fn fail_over(&mut self) {
        self.primary.kill();
        self.promote();
    }

    /// Lets the primary stand still, and makes the standby the primary. Connections to the old one stay.
    pub fn usurp(&mut self) {
        self.primary.suspend();
        self.usurped = Some(self.promote());
    }

    /// Lets the old primary go on; what it confirms is worth nothing any more.
    pub fn wake_usurped(&mut self) {
        self.usurped.iter_mut().for_each(Postgres::resume);
    }

    /// Answers the old primary. The new one gets a standby of its own; only when that follows may it be
    /// lost in turn, so this returns then.
    fn promote(&mut self) -> Postgres {
        self.standby.promote();
        self.links.iter().for_each(|link| link.lead_to(address(&self.standby)));
        self.standbys += 1;
        let name = format!("standby{}", self.standbys);
        let next = self.standby.standby(&name);
        self.standby.wait_for(&[&name]);
        let promoted = std::mem::replace(&mut self.standby, next);
        std::mem::replace(&mut self.primary, promoted)
    }
}

fn address(server: &Postgres) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, server.port()).into()
}
