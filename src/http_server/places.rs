//! The connections of one listener: how many there are, in all and of each client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::ApiBounds;
use crate::client_address::ClientAddress;

/// See the module.
#[derive(Clone)]
pub(super) struct Places(Arc<Shared>);

struct Shared {
    bounds: ApiBounds,
    open: Mutex<Open>,
    closed: Notify,
}

#[derive(Default)]
struct Open {
    all: usize,
    by_client: HashMap<ClientAddress, usize>,
}

/// A connection's place, until it is dropped.
pub(super) struct Place {
    places: Places,
    client: ClientAddress,
}

impl Places {
    pub(super) fn new(bounds: ApiBounds) -> Places {
        Places(Arc::new(Shared { bounds, open: Mutex::default(), closed: Notify::new() }))
    }

    /// Waits until there is room for one more.
    pub(super) async fn room(&self) {
        while self.open().all >= self.0.bounds.get().connections {
            self.0.closed.notified().await;
        }
    }

    /// `None`: this client has as many as it may have.
    pub(super) fn enter(&self, from: IpAddr) -> Option<Place> {
        let client = ClientAddress::from(from);
        let limit = self.0.bounds.get().client_connections;
        let mut open = self.open();
        let of_client = open.by_client.entry(client).or_default();
        if *of_client >= limit {
            return None;
        }
        *of_client += 1;
        open.all += 1;
        Some(Place { places: self.clone(), client })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open();
        open.all -= 1;
        if let Some(of_client) = open.by_client.get_mut(&self.client) {
            *of_client -= 1;
            if *of_client == 0 {
                open.by_client.remove(&self.client);
            }
        }
        drop(open);
        self.places.0.closed.notify_one();
    }
}
