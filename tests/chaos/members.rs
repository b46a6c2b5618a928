//! The members of etcd, with a link from each gateway to each, and one to each from the others.

use std::net::{Ipv4Addr, SocketAddr};

use rustix::process::Signal;

use super::link::{Link, Network};
use super::plan::Blow;
use super::servers::etcd::Etcd;

/// See the module.
pub struct Members {
    etcd: Etcd,
    /// Those that were not killed, or are to be started again.
    wanted: Vec<bool>,
    /// By gateway, then by member.
    from_gateways: Vec<Vec<Link>>,
    from_others: Vec<Link>,
}

impl Members {
    pub fn start(network: &Network, gateways: usize) -> Members {
        let mut entrances = Vec::new();
        let etcd = Etcd::cluster_behind(|peer| {
            let link = network.link_to(SocketAddr::from((Ipv4Addr::LOCALHOST, peer)));
            let port = link.address.port();
            entrances.push(link);
            port
        });
        let endpoints = etcd.endpoints();
        // A start may have failed because a port was taken, and left its links behind.
        let from_others = entrances.split_off(entrances.len() - endpoints.len());
        let link = |to: &String| network.link_to(to.parse().expect("an address"));
        let from_gateways = (0..gateways).map(|_| endpoints.iter().map(link).collect()).collect();
        Members { etcd, wanted: vec![true; endpoints.len()], from_gateways, from_others }
    }

    /// Where a gateway finds them.
    pub fn url(&self, gateway: usize) -> String {
        let addresses = self.from_gateways[gateway].iter().map(|link| link.address.to_string());
        format!("etcd://{}", addresses.collect::<Vec<_>>().join(","))
    }

    pub fn link(&self, gateway: usize, member: usize) -> &Link {
        &self.from_gateways[gateway][member]
    }

    /// What the others send to one comes by this.
    pub fn link_from_others(&self, member: usize) -> &Link {
        &self.from_others[member]
    }

    pub fn strike(&mut self, member: usize, blow: Blow) {
        if blow == Blow::Kill {
            self.wanted[member] = false;
            self.etcd.kill(member);
        } else {
            self.etcd.signal(member, Signal::STOP);
        }
    }

    pub fn heal(&mut self, member: usize, blow: Blow) {
        if blow == Blow::Kill {
            self.wanted[member] = true;
            self.etcd.tend(member);
        } else {
            self.etcd.signal(member, Signal::CONT);
        }
    }

    /// Starts members again that have ended by themselves, as one does whose port was taken meanwhile.
    pub fn tend(&mut self) {
        for (member, _) in self.wanted.iter().enumerate().filter(|(_, wanted)| **wanted) {
            self.etcd.tend(member);
        }
    }
}
