//! Requests about etcd's leases and about the keys that hang on them.
//!
//! Each may be made twice without harm, since the connection repeats what was not answered: a change
//! names what it expects, and reads back what it finds instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use etcd_client::{Compare, PutOptions, Txn, TxnOp, TxnOpResponse};

use super::connection::{Connection, Failure};
use super::layout::{Claim, Value};
use crate::clock::{Clock, WallTime};
use crate::fence::Token;

/// Leases of etcd, which have whole seconds and a shortest time to live.
#[derive(Debug)]
pub(super) struct Leases {
    connection: Arc<Connection>,
    clock: Clock,
    /// The shortest time to live that this etcd gave, as far as it is known; seconds.
    shortest_s: AtomicI64,
}

/// An etcd lease, and how long it lives unless it is kept alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) id: i64,
    pub(super) ttl: Duration,
    /// Counted from before it was asked for, so no later than etcd counts.
    pub(super) expires_at: WallTime,
}

impl Leases {
    pub(super) const fn new(connection: Arc<Connection>, clock: Clock) -> Leases {
        Leases { connection, clock, shortest_s: AtomicI64::new(1) }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What etcd makes of a time to live: whole seconds, rounded up, and not below its minimum.
    pub(super) fn rounded(&self, ttl: Duration) -> i64 {
        let rounded_up = ttl + Duration::from_nanos(999_999_999);
        let seconds = i64::try_from(rounded_up.as_secs()).unwrap_or(i64::MAX);
        seconds.max(self.shortest_s.load(Ordering::Relaxed))
    }

    pub(super) async fn grant(&self, ttl: Duration) -> Result<Term, Failure> {
        let asked = self.rounded(ttl);
        // An attempt that was not answered may leave a lease behind; without keys it ends unseen.
        let (term, given) = self
            .connection
            .call(async |client| {
                let began = self.clock.wall();
                let answer = client.lease_client().grant(asked, None).await?;
                let ttl = Duration::from_secs(u64::try_from(answer.ttl()).unwrap_or(0));
                Ok((Term { id: answer.id(), ttl, expires_at: began + ttl }, answer.ttl()))
            })
            .await?;
        if given > asked {
            self.shortest_s.fetch_max(given, Ordering::Relaxed);
        }
        Ok(term)
    }

    /// Keeps a lease alive for the TTL that it was granted with, and answers when it was asked for.
    /// That etcd answered is not enough: [`Failure::NoSuchLease`] is the answer with a TTL of 0.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<WallTime, Failure> {
        self.connection
            .call(async |client| {
                let began = self.clock.wall();
                client.lease_client().keep_alive(id).await?;
                Ok(began)
            })
            .await
    }

    /// Ends a lease whose keys are not wanted any more. If that fails, it expires.
    pub(super) async fn revoke(&self, id: i64) {
        let revoke = async |client: etcd_client::Client| client.lease_client().revoke(id).await;
        match self.connection.call(revoke).await {
            Ok(_) | Err(Failure::NoSuchLease) => {}
            Err(failure) => {
                tracing::warn!(error = %failure, "an etcd lease was not revoked; it ends by expiry");
            }
        }
    }

    /// The TTL that a lease was granted with, and what is left of it; `None` if it is over.
    pub(super) async fn time_left(&self, id: i64) -> Result<Option<(Duration, Duration)>, Failure> {
        let asked =
            async |client: etcd_client::Client| client.lease_client().time_to_live(id, None).await;
        let answer = self.connection.call(asked).await?;
        let seconds = |number| u64::try_from(number).map(Duration::from_secs).ok();
        Ok(seconds(answer.ttl()).zip(seconds(answer.granted_ttl())).map(|(left, ttl)| (ttl, left)))
    }

    /// If all of `when` holds: does what is to be done `before`, puts `value` into `key`, on the
    /// lease, and reads the key back. `None`: it did not hold, and the key is not as it would be.
    pub(super) async fn put(
        &self,
        when: Vec<Compare>,
        before: Vec<TxnOp>,
        key: &str,
        value: &Value,
        lease_id: i64,
    ) -> Result<Option<Token>, Failure> {
        let written = value.bytes();
        let options = PutOptions::new().with_lease(lease_id);
        let mut then = before;
        then.push(TxnOp::put(key, written.clone(), Some(options)));
        then.push(TxnOp::get(key, None));
        let txn = Txn::new().when(when).and_then(then).or_else([TxnOp::get(key, None)]);
        let answer =
            self.connection.call(async |client| client.kv_client().txn(txn.clone()).await).await?;
        let Some(TxnOpResponse::Get(found)) = answer.op_responses().pop() else {
            return Ok(None);
        };
        // It is there as well if an earlier attempt had put it, whose answer was lost.
        let ours = found.kvs().iter().find(|kv| kv.lease() == lease_id && kv.value() == written);
        Ok(ours.and_then(Claim::of).map(|claim| claim.token))
    }
}
