//! Connections for what a worker waits for, which stay out of the pool between two calls.
//!
//! The pool asks every connection that it gets back something, and hands out the one that has rested longest. A raise
//! would be behind that question, and on a session of the server that is not in the processor's caches any more. Here
//! the one that was used last is used next. They count as the pool's all the same, and a share is left to other calls,
//! above all to the renewal of this instance's lease.
//! Deliberately absent: waiting. Whoever finds none at hand asks the pool, and waits there, also if one comes back
//! here meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::pool::PoolConnection;

use super::trust::Trust;
use crate::clock::{Boottime, Clock};

/// Something on the way may have forgotten a connection that was silent for longer.
const REST: Duration = Duration::from_mins(1);
/// Out of the pool, which has a limit like this for its own.
const LIFE: Duration = Duration::from_mins(30);
/// More of the pool's connections than this stay out of it at no time.
const MOST: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct AtHand {
    pool: PgPool,
    trust: Trust,
    clock: Clock,
    most: usize,
    resting: Mutex<Vec<Resting>>,
}

/// A connection in use, and when it was asked for: what is found out of the server after that may be about it.
#[derive(Debug)]
pub(super) struct InUse {
    pub(super) connection: PoolConnection<sqlx::Postgres>,
    since: Boottime,
}

#[derive(Debug)]
struct Resting {
    one: InUse,
    used_at: Boottime,
}

impl AtHand {
    pub(super) fn new(pool: PgPool, trust: Trust, clock: Clock) -> AtHand {
        let most = MOST.min(pool.options().get_max_connections() / 4) as usize;
        AtHand { pool, trust, clock, most, resting: Mutex::default() }
    }

    /// The one that was used last, or one of the pool.
    pub(super) async fn take(&self) -> Result<InUse, sqlx::Error> {
        match self.last() {
            Some(at_hand) => Ok(at_hand),
            None => self.one_of_the_pool().await,
        }
    }

    /// One of the pool.
    pub(super) async fn one_of_the_pool(&self) -> Result<InUse, sqlx::Error> {
        // It connects, if it has to, and is as large as that takes: every move of a call would copy it.
        let since = self.clock.now();
        let connection = Box::pin(self.pool.acquire()).await?;
        Ok(InUse { connection, since })
    }

    /// Keeps one that is in good order; the pool gets what is too many.
    pub(super) fn keep(&self, one: InUse) {
        let mut resting = self.lock();
        // Whoever closes the pool waits for all that is out. Looked at under the lock that `close` needs after it.
        if resting.len() < self.most && !self.pool.is_closed() {
            resting.push(Resting { one, used_at: self.clock.now() });
        }
    }

    /// How many are not in use.
    pub(super) fn resting(&self) -> usize {
        self.lock().len()
    }

    /// Closes the pool, when all that is in use is back.
    pub(super) async fn close(&self) {
        let closed = self.pool.close();
        self.lock().clear();
        closed.await;
    }

    fn last(&self) -> Option<InUse> {
        loop {
            let Resting { mut one, used_at } = self.lock().pop()?;
            let now = self.clock.now();
            let age = now.since(one.since);
            if self.trust.is_in(age) && age < LIFE && now.since(used_at) < REST {
                return Some(one);
            }
            one.connection.close_on_drop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Resting>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
