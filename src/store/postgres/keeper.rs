//! The lease of this instance in the store: taken, renewed, and when it is over, taken anew under another name.
//!
//! Invariant: the deadline is counted from before the renewal was sent, on the clock that counts suspension, and
//! an answer that comes after it prolongs nothing. A server that is not the one that was told what this
//! instance remembers is told before anything is granted by it; until then grants that are in memory go on,
//! as nobody but this server could have revoked them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::wire::{MemberAnswer, Named, ServerAnswer, millis};
use super::{InstanceMetrics, Postgres, Server, listen};
use crate::clock::{Boottime, Clock};
use crate::fence::{Grant, Rank, Resource};
use crate::metrics::Operation;
use crate::store::{InstanceId, InstanceLease, Member, Remembered, StoreError};

/// Between attempts to renew, and to begin again.
const PAUSE: Duration = Duration::from_millis(200);
/// Resources that are asserted in one call.
const BATCH: usize = 500;

/// Has the lease; see [`Keeper::keep`].
pub struct Keeper {
    store: Postgres,
    ttl: Duration,
    metrics: InstanceMetrics,
    lease: Arc<InstanceLease>,
    deadline: Boottime,
    renew_at: Boottime,
}

/// The lease while it is being kept.
pub struct Kept {
    store: Postgres,
    stop: CancellationToken,
    work: TaskTracker,
}

/// What a renewal found.
enum Standing {
    Member,
    /// The store did not answer, or not in a way that counts.
    Unknown,
    /// The lease is over.
    Over(&'static str),
}

impl Keeper {
    /// Takes a lease of this length.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn join(
        store: &Postgres,
        ttl: Duration,
        metrics: InstanceMetrics,
    ) -> Result<Keeper, StoreError> {
        let lease = Arc::new(InstanceLease::pending());
        let joined = store.join(ttl).await?;
        store.set_server(joined.server);
        lease.begin(joined.id, joined.sent, ttl);
        store.set_present(&lease);
        let (deadline, renew_at) = (joined.sent + ttl, joined.sent + ttl / 3);
        Ok(Keeper { store: store.clone(), ttl, metrics, lease, deadline, renew_at })
    }

    /// The lease.
    #[must_use]
    pub fn lease(&self) -> Arc<InstanceLease> {
        Arc::clone(&self.lease)
    }

    /// Renews it until [`Kept::leave`], passes on what others want of `member`, and takes care of those that are
    /// gone.
    #[must_use]
    pub fn keep(self, member: Arc<dyn Member>) -> Kept {
        let (stop, work) = (CancellationToken::new(), TaskTracker::new());
        let kept = Kept { store: self.store.clone(), stop: stop.clone(), work: work.clone() };
        let metrics = self.metrics.clone();
        listen::spawn(&kept.store, &member, &metrics, &stop, &work);
        work.spawn(async move {
            stop.run_until_cancelled(self.renew_for_ever(&*member)).await;
        });
        work.close();
        kept
    }

    async fn renew_for_ever(mut self, member: &dyn Member) {
        loop {
            let standing = self.renew_once(member).await;
            if let Standing::Over(why) = standing {
                self.start_over(member, why).await;
                continue;
            }
            if let Standing::Unknown = standing {
                self.metrics.renewals_failed.inc();
                self.renew_at = self.clock().now() + PAUSE;
            }
            let (clock, wake_at) = (self.clock(), self.renew_at.min(self.deadline));
            tokio::select! {
                () = clock.sleep_until(wake_at) => {}
                () = self.store.0.doubtful.notified() => {}
            }
        }
    }

    async fn renew_once(&mut self, member: &dyn Member) -> Standing {
        let clock = self.clock();
        let silent = Standing::Over("the store did not confirm its lease in time");
        tokio::select! {
            biased;
            () = clock.sleep_until(self.deadline) => {
                // A store that is not there is asked for as long as a call may take, mostly beyond the deadline.
                self.metrics.renewals_failed.inc();
                silent
            }
            standing = self.ask(member) => {
                // Whoever looked at the lease meanwhile has found it over.
                if clock.now() >= self.deadline { silent } else { standing }
            }
        }
    }

    async fn ask(&mut self, member: &dyn Member) -> Standing {
        let sent = self.clock().now();
        let Ok(MemberAnswer { server, member: is_member }) = self.store.renew(self.id()).await
        else {
            return Standing::Unknown;
        };
        if !is_member {
            return Standing::Over("other instances took it for dead, or the store lost it");
        }
        if self.store.server() != server {
            let remembered = member.remembered();
            tracing::warn!(
                instance = %self.id(),
                resources = remembered.len(),
                "the database server is another one than before, or was restarted: telling it what this instance remembers"
            );
            match self.store.assert(self.id(), &remembered, true, &server).await {
                Ok(true) => self.store.accept(server),
                Ok(false) => return Standing::Over("the store lost it"),
                Err(_) => return Standing::Unknown,
            }
        }
        let now = self.clock().now();
        if now < self.deadline {
            self.deadline = sent + self.ttl;
            self.renew_at = sent + self.ttl / 3;
            self.lease.prolong(sent, self.ttl);
        }
        Standing::Member
    }

    /// Ends this run and begins the next, however long the store takes for it.
    async fn start_over(&mut self, member: &dyn Member, why: &'static str) {
        self.lease.end();
        self.store.0.trust.lose();
        self.metrics.starts_over.inc();
        let old = self.id();
        tracing::error!(instance = %old, why, "this instance starts over: what was in flight is cut");
        let remembered = member.remembered();
        let next = Arc::new(InstanceLease::pending());
        let unsettled = member.start_over(Arc::clone(&next));
        self.lease = next;
        let joined = loop {
            match self.rejoin(old, &remembered, &unsettled).await {
                Ok(joined) => break joined,
                Err(error) => tracing::warn!(%error, "the store is not there to start over"),
            }
            tokio::time::sleep(PAUSE).await;
        };
        self.deadline = joined.sent + self.ttl;
        self.renew_at = joined.sent + self.ttl / 3;
        tracing::info!(instance = %joined.id, before = %old, "this instance started over");
        self.store.set_present(&self.lease);
        self.lease.begin(joined.id, joined.sent, self.ttl);
    }

    async fn rejoin(
        &self,
        old: InstanceId,
        remembered: &[Remembered],
        unsettled: &[(Resource, Rank)],
    ) -> Result<Joined, StoreError> {
        let server = self.store.leave(old, self.ttl, &as_recorded(remembered, unsettled)).await?;
        let is_known = self.store.server() == server;
        if !is_known {
            self.store.assert(old, remembered, false, &server).await?;
        }
        let joined = self.store.join(self.ttl).await?;
        if joined.server != server {
            return Err(StoreError("the server changed again".into()));
        }
        if !is_known {
            self.store.accept(server);
        }
        Ok(joined)
    }

    fn clock(&self) -> Clock {
        self.store.0.clock
    }

    fn id(&self) -> InstanceId {
        self.lease.instance()
    }
}

impl Kept {
    /// Ends the run at once, so that nobody waits for its lease to run out. To be called when all grants were
    /// given back but those whose writes may still take effect.
    pub async fn leave(self) {
        self.stop.cancel();
        self.work.wait().await;
        let lease = self.store.present();
        lease.end();
        if let Err(error) = self.store.retire(lease.instance()).await {
            tracing::warn!(%error, "others will wait until the lease of this instance has run out");
        }
        self.store.0.at_hand.close().await;
    }
}

/// A run that began.
struct Joined {
    id: InstanceId,
    server: Server,
    sent: Boottime,
}

/// A grant whose writes may still take effect, and what is recorded with it.
type KeptGrant = (Resource, Rank, Option<Grant>);

/// In case that the store lost the grants: then they are recorded again.
fn as_recorded(remembered: &[Remembered], unsettled: &[(Resource, Rank)]) -> Vec<KeptGrant> {
    let mut records = HashMap::new();
    for Remembered { resource, grants, .. } in remembered {
        for (rank, grant) in grants {
            records.insert((resource, *rank), *grant);
        }
    }
    let as_recorded = |(resource, rank): &(Resource, Rank)| {
        (resource.clone(), *rank, records.get(&(resource, *rank)).copied())
    };
    unsettled.iter().map(as_recorded).collect()
}

impl Postgres {
    async fn join(&self, ttl: Duration) -> Result<Joined, StoreError> {
        // 53 bits, so that tools that take numbers for floats show it right.
        let random = uuid::Uuid::new_v4().as_u64_pair().1 >> 11;
        let id = InstanceId::from_i64(random.cast_signed() | 1);
        let sent = self.0.clock.now();
        let asked = json!({"instance": id.as_i64(), "ttl_ms": millis(ttl)});
        let ServerAnswer { server } =
            self.call(Operation::Instance, "fencegate_join", &asked).await?;
        Ok(Joined { id, server, sent })
    }

    async fn renew(&self, id: InstanceId) -> Result<MemberAnswer, StoreError> {
        let asked = json!({"instance": id.as_i64()});
        self.call(Operation::Instance, "fencegate_renew", &asked).await
    }

    async fn leave(
        &self,
        id: InstanceId,
        ttl: Duration,
        keep: &[KeptGrant],
    ) -> Result<Server, StoreError> {
        let keep: Vec<_> = keep
            .iter()
            .map(|(resource, rank, grant)| match grant {
                Some(grant) => Named::grant(resource, *rank, *grant),
                None => Named::rank(resource, *rank),
            })
            .collect();
        let asked = json!({"instance": id.as_i64(), "ttl_ms": millis(ttl), "keep": keep});
        let ServerAnswer { server } =
            self.call(Operation::Instance, "fencegate_leave", &asked).await?;
        self.give_back_all_but(id, &keep).await?;
        Ok(server)
    }

    /// Leaves with whatever grants there are.
    async fn retire(&self, id: InstanceId) -> Result<(), StoreError> {
        let asked = json!({"instance": id.as_i64()});
        self.call(Operation::Instance, "fencegate_retire", &asked).await
    }

    /// Tells `server` what this instance remembers, and answers whether it is still a member there.
    async fn assert(
        &self,
        id: InstanceId,
        remembered: &[Remembered],
        with_grants: bool,
        server: &Server,
    ) -> Result<bool, StoreError> {
        for batch in remembered.chunks(BATCH) {
            let marks: Vec<_> = batch
                .iter()
                .map(|Remembered { resource, mark, .. }| Named::mark(resource, *mark))
                .collect();
            let grants: Vec<_> = batch
                .iter()
                .filter(|_| with_grants)
                .flat_map(|Remembered { resource, grants, .. }| {
                    grants.iter().map(|(rank, grant)| Named::grant(resource, *rank, *grant))
                })
                .collect();
            let asked = json!({"instance": id.as_i64(), "marks": marks, "grants": grants});
            let answer: MemberAnswer =
                self.call(Operation::Instance, "fencegate_assert", &asked).await?;
            if answer.server != *server {
                return Err(StoreError("the server changed again".into()));
            }
            if with_grants && !answer.member {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// From now on the answers of this server count.
    fn accept(&self, server: Server) {
        self.others().forget();
        self.set_server(server);
    }
}
