//! What the tests of several modules need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::client::Client;
use super::load::Clients;
use super::watch::{Tenancy, Watch};
use crate::clock::Clock;

/// The watch of a new connection of HTTP/1.1, within a runtime.
pub(super) fn watch() -> Arc<Watch> {
    let (clock, address) = (Clock::new(), ([127, 0, 0, 1], 1).into());
    let client = Arc::new(Client::new(address, &[], false));
    let entered = Clients::new(clock, 1).enter(address.ip()).expect("there is room");
    let tenancy =
        Tenancy { client: Arc::clone(&entered.client), since: clock.now(), requests: 100 };
    Arc::new(Watch::new(client, Arc::new(tenancy), Handle::current(), TaskTracker::new()))
}

/// Counts wakes.
#[derive(Default)]
pub(super) struct Wakes(AtomicU32);

impl Wakes {
    pub(super) fn new() -> (Arc<Wakes>, Waker) {
        let wakes = Arc::new(Wakes::default());
        (Arc::clone(&wakes), wakes.into())
    }

    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
