//! Who the clients are, and what each of them has under way.
//!
//! One lock guards the table, and is taken when a connection begins and when it ends. A client without connections is kept only for what
//! it has used up of its rate, and the table is bounded: who comes from ever new addresses displaces such memories,
//! and gains no more by that than by the new addresses themselves.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Bucket;
use crate::client_address::ClientAddress;
use crate::clock::{Boottime, Clock};

/// Clients without a connection whose use of their rate is remembered.
const REMEMBERED: usize = 65_536;

/// All clients of the proxy listener.
pub(in crate::gateway) struct Clients {
    clock: Clock,
    /// Connections that each may have.
    limit: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    clients: HashMap<ClientAddress, Arc<Client>>,
    connected: usize,
}

/// One client.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Client {
    /// Changed only under the table's lock.
    connections: AtomicUsize,
    pub(super) under_way: AtomicUsize,
    pub(super) bucket: Bucket,
}

/// A connection's place among those of its client, until it is dropped.
pub(in crate::gateway) struct Entered {
    clients: Arc<Clients>,
    address: ClientAddress,
    pub(in crate::gateway) client: Arc<Client>,
}

impl Clients {
    pub(in crate::gateway) fn new(clock: Clock, limit: usize) -> Arc<Clients> {
        Arc::new(Clients { clock, limit: AtomicUsize::new(limit), table: Mutex::default() })
    }

    /// Lets each client have so many connections from now on; none is closed.
    pub(in crate::gateway) fn allow(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Takes a place for a connection from `address`; `None`: that client has as many as it may have.
    pub(in crate::gateway) fn enter(self: &Arc<Clients>, address: IpAddr) -> Option<Entered> {
        let address = ClientAddress::from(address);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if !table.clients.contains_key(&address) {
            table.make_room(self.clock.now());
        }
        let client = Arc::clone(table.clients.entry(address).or_default());
        let connections = client.connections.load(Ordering::Relaxed);
        if connections >= self.limit.load(Ordering::Relaxed) {
            return None;
        }
        client.connections.store(connections + 1, Ordering::Relaxed);
        table.connected += usize::from(connections == 0);
        drop(table);
        Some(Entered { clients: Arc::clone(self), address, client })
    }
}

impl Table {
    /// Forgets clients that have no connection, first those of whom there is nothing to remember.
    fn make_room(&mut self, now: Boottime) {
        if self.clients.len() - self.connected < REMEMBERED {
            return;
        }
        let is_connected = |client: &Client| client.connections.load(Ordering::Relaxed) > 0;
        self.clients.retain(|_, client| is_connected(client) || !client.bucket.is_full(now));
        if self.clients.len() - self.connected >= REMEMBERED {
            self.clients.retain(|_, client| is_connected(client));
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut table = self.clients.table.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.client.connections.load(Ordering::Relaxed) - 1;
        self.client.connections.store(left, Ordering::Relaxed);
        if left > 0 {
            return;
        }
        table.connected -= 1;
        // A write that goes on without its connection counts until it is over.
        let is_idle = self.client.under_way.load(Ordering::Relaxed) == 0;
        if is_idle && self.client.bucket.is_full(self.clients.clock.now()) {
            table.clients.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;
    use crate::config::Rate;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn size(clients: &Clients) -> usize {
        clients.table.lock().unwrap().clients.len()
    }

    #[test]
    fn connections_are_counted_by_client() {
        let clients = Clients::new(Clock::new(), 2);
        let enter = |from: &str| clients.enter(address(from));
        let (first, second) = (enter("10.0.0.1"), enter("10.0.0.1"));
        assert!(first.is_some() && second.is_some() && enter("10.0.0.1").is_none());
        assert!(enter("10.0.0.2").is_some());
        drop(first);
        assert!(enter("10.0.0.1").is_some());
    }

    #[test]
    fn nothing_is_left_of_clients_that_owe_nothing() {
        let clients = Clients::new(Clock::new(), 2);
        drop(clients.enter(address("10.0.0.1")));
        assert_eq!(size(&clients), 0);
    }

    #[test]
    fn a_client_that_comes_again_finds_its_rate_as_it_left_it() {
        let clients = Clients::new(Clock::new(), 2);
        let rate = Rate { count: 1, per: Duration::from_secs(60) };
        let take = || {
            let entered = clients.enter(address("10.0.0.1")).unwrap();
            entered.client.bucket.take(rate, clients.clock.now())
        };
        assert!(take().is_ok() && take().is_err());
    }

    #[test]
    fn the_table_is_bounded() {
        let clients = Clients::new(Clock::new(), 2);
        let rate = Rate { count: 1, per: Duration::from_secs(3600) };
        let stays = clients.enter(address("10.0.0.1")).unwrap();
        for number in 0..u32::try_from(REMEMBERED).unwrap() + 10 {
            let from = IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + number));
            let entered = clients.enter(from).unwrap();
            entered.client.bucket.take(rate, clients.clock.now()).unwrap();
        }
        assert!(size(&clients) <= REMEMBERED + 1);
        assert!(clients.table.lock().unwrap().clients.contains_key(&address("10.0.0.1").into()));
        drop(stays);
    }
}
