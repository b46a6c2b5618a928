//! How much is let in: by client, by route.
//!
//! Owned here: the counts that limits are held against. Who is over a limit is refused at once; nothing waits here.
//! A client is looked up when it connects, never for a request: a request costs a look at the limits if there are
//! none, and two or three atomic steps if there are. Deliberately absent: fairness among those who are let in.

mod bucket;
mod clients;
mod turn;

pub(super) use bucket::Bucket;
pub(super) use clients::{Client, Clients};
pub(super) use turn::{Limited, RouteLoad, Turn, charge};

use crate::config::{Limits, Rate};

/// What a client may do, whichever route it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientLimits {
    pub(super) concurrency: Option<usize>,
    pub(super) rate: Option<Rate>,
}

impl ClientLimits {
    pub(super) const fn new(limits: &Limits) -> ClientLimits {
        ClientLimits { concurrency: limits.client_concurrency, rate: limits.client_rate }
    }
}
