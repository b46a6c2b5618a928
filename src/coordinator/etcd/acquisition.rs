//! One acquisition, from the request to the moment at which the caller has the lease.
//!
//! Who waits at this gateway waits in a queue in memory. Its head alone waits in etcd as well, with
//! a key behind the keys of those who came before, on an etcd lease that is short: if this gateway
//! dies, its place comes free soon. When the key is the first one, it is put on a lease of the time
//! to live that was asked for, in one transaction that checks that it is still there and first.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, TxnOp};

use super::Layout;
use super::Shared;
use super::connection::Failure;
use super::layout::{Claim, Value};
use super::leases::Term;
use super::reads::{Look, MOST_CLAIMS};
use crate::clock::Boottime;
use crate::coordinator::queue::Place;
use crate::coordinator::{Acquired, CoordinatorError, Lease, delivery};
use crate::fence::{Owner, Resource, Token};

/// A waiting key lives this long without its gateway.
const WAITING_TTL: Duration = Duration::from_secs(10);
/// How often a waiting key is kept alive, and the lease looked at in case an event was missed.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// For what nobody waits for.
const LATER: Duration = Duration::from_millis(200);

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) resource: Resource,
    pub(super) owner: Owner,
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
}

/// A key in etcd's queue.
#[derive(Clone, Debug)]
struct Waiting {
    key: String,
    token: Token,
    term: Term,
    kept_alive: Boottime,
}

/// Acquires, and hands over or releases.
pub(super) async fn run(shared: Arc<Shared>, request: Request, mut caller: delivery::Sender) {
    let acquired =
        Acquisition { shared: &shared, request: &request, waiting: None }.finish(&mut caller).await;
    let Some(acquired) = acquired.transpose() else { return };
    if let Some(lease) = caller.deliver(acquired).await
        && let Err(error) = shared.release(lease.resource, lease.owner, lease.token).await
    {
        tracing::warn!(%error, "an abandoned lease was not released; it ends by expiry");
    }
}

struct Acquisition<'a> {
    shared: &'a Arc<Shared>,
    request: &'a Request,
    waiting: Option<Waiting>,
}

/// What one attempt came to.
enum Attempt {
    Granted(Lease),
    Held(Claim),
    /// Nobody has it, but others at this gateway came first.
    Free,
    /// Somebody was quicker.
    Again,
}

impl Acquisition<'_> {
    /// `None`: the caller is gone. Leaves no key behind but that of a lease that was granted.
    async fn finish(
        mut self,
        caller: &mut delivery::Sender,
    ) -> Result<Option<Acquired>, CoordinatorError> {
        let acquired = self.contend(caller).await;
        if let Some(waiting) = self.waiting.take() {
            self.shared.leases.revoke(waiting.term.id).await;
        }
        acquired
    }

    async fn contend(
        &mut self,
        caller: &mut delivery::Sender,
    ) -> Result<Option<Acquired>, CoordinatorError> {
        let Shared { clock, queues, metrics, .. } = &**self.shared;
        let began = clock.now();
        let deadline = began + self.request.wait;
        let place = queues.join(&self.request.resource)?;
        loop {
            let patience = deadline.since(clock.now());
            match self.attempt(&place, !patience.is_zero()).await? {
                Attempt::Granted(lease) => {
                    metrics.acquired(&lease, clock.now().since(began));
                    return Ok(Some(Acquired::Granted(lease)));
                }
                Attempt::Held(holder) if patience.is_zero() => {
                    metrics.refused_as_held();
                    return Ok(Some(Acquired::Held(self.held(&holder).await?)));
                }
                Attempt::Held(_) => {
                    let look = if place.is_head() { patience.min(LOOK_EVERY) } else { patience };
                    tokio::select! {
                        () = caller.abandoned() => return Ok(None),
                        () = place.told() => {}
                        () = tokio::time::sleep(look) => {}
                    }
                }
                Attempt::Free => {
                    // Once it knows, the head takes it or leaves within a transaction's time,
                    // whatever the patience.
                    queues.tell_head(&self.request.resource);
                    tokio::select! {
                        () = caller.abandoned() => return Ok(None),
                        () = place.told() => {}
                    }
                }
                Attempt::Again => {}
            }
        }
    }

    async fn attempt(&mut self, place: &Place, waits: bool) -> Result<Attempt, Failure> {
        let is_head = place.is_head();
        self.keep_waiting().await?;
        let own_key = self.waiting.as_ref().map(|waiting| waiting.key.as_str());
        let Look { holder, own_is_there } =
            self.shared.look(&self.request.resource, own_key).await?;
        if !own_is_there && let Some(lost) = self.waiting.take() {
            // Its lease ran out, or another claim of the holder went before it.
            self.shared.leases.revoke(lost.term.id).await;
        }
        match holder {
            None if is_head => self.take().await,
            None => Ok(Attempt::Free),
            Some(first) if self.waiting.as_ref().is_some_and(|own| own.token == first.token) => {
                self.confirm().await
            }
            Some(first) if first.is_of(&self.request.owner) && self.waiting.is_none() => {
                self.supersede(first, place).await
            }
            Some(_) if is_head && waits && self.may_queue() => self.queue().await,
            Some(first) => Ok(Attempt::Held(first)),
        }
    }

    /// The holder's lease, also if it ended just now.
    async fn held(&self, holder: &Claim) -> Result<Lease, Failure> {
        let Request { resource, .. } = self.request;
        let lease = self.shared.lease(resource, holder).await?;
        Ok(lease.unwrap_or_else(|| holder.lease(resource, self.shared.clock.wall())))
    }

    /// Whether to wait in etcd's queue; with one exact key there is none.
    fn may_queue(&self) -> bool {
        self.waiting.is_none() && self.shared.keys.layout() == Layout::Mutex
    }

    /// Takes a lease that nobody has and nobody waits for.
    async fn take(&self) -> Result<Attempt, Failure> {
        let Shared { keys, leases, .. } = &**self.shared;
        let term = leases.grant(self.request.ttl).await?;
        let nobody = keys.each(&self.request.resource, CompareOp::Equal, 0);
        self.claim(vec![nobody], Vec::new(), term).await
    }

    /// Puts the key of a lease that is to be held from now on.
    async fn claim(
        &self,
        when: Vec<Compare>,
        before: Vec<TxnOp>,
        term: Term,
    ) -> Result<Attempt, Failure> {
        let Shared { keys, leases, .. } = &**self.shared;
        let key = keys.own(&self.request.resource, term.id);
        let value = self.value(term, true);
        match leases.put(when, before, &key, &value, term.id).await {
            Ok(Some(token)) => {
                self.shared.given.note(&self.request.resource, &key, token);
                Ok(Attempt::Granted(value.lease(self.request.resource.clone(), token)))
            }
            Ok(None) => {
                leases.revoke(term.id).await;
                Ok(Attempt::Again)
            }
            Err(failure) => {
                // It may be there, and nobody would know of it.
                leases.revoke(term.id).await;
                Err(failure)
            }
        }
    }

    /// Gives the owner a new token at once. In one transaction its old key goes, the new one comes,
    /// and the keys of gateways that wait go as well, since they would be before it: they come again.
    async fn supersede(&mut self, old: Claim, place: &Place) -> Result<Attempt, Failure> {
        let Shared { keys, leases, .. } = &**self.shared;
        let resource = &self.request.resource;
        let (claims, revision) = self.shared.claims(resource).await?;
        if claims.first().is_none_or(|first| first.token != old.token) {
            return Ok(Attempt::Again);
        }
        let are_all_ours = claims.iter().all(|claim| claim.value.is_some());
        if keys.layout() == Layout::Key || !are_all_ours || claims.len() > MOST_CLAIMS {
            return self.supersede_in_two_steps(old, place).await;
        }
        let deletes = claims.iter().map(|claim| TxnOp::delete(claim.key.clone(), None)).collect();
        let term = leases.grant(self.request.ttl).await?;
        let nobody_came = keys.each(resource, CompareOp::Less, revision + 1);
        let attempt = self.claim(vec![old.stands(), nobody_came], deletes, term).await?;
        if let Attempt::Granted(_) = &attempt {
            self.superseded(&old);
        }
        Ok(attempt)
    }

    /// One exact key cannot go and come in one transaction. And other programs' keys are never
    /// deleted here, so behind those the owner waits, as its new key has to be after them.
    async fn supersede_in_two_steps(
        &mut self,
        old: Claim,
        place: &Place,
    ) -> Result<Attempt, Failure> {
        place.go_first();
        if self.shared.delete(&old).await? {
            self.superseded(&old);
        }
        if self.may_queue() { self.queue().await } else { self.take().await }
    }

    /// The key is gone, and nobody waits for the etcd lease without it.
    fn superseded(&self, old: &Claim) {
        let now = self.shared.clock.wall();
        self.shared.metrics.superseded(&old.lease(&self.request.resource, now), now);
        self.revoke_later(old.lease_id);
    }

    /// Ends an etcd lease that has no key any more. Not at once, since who was given one now is about to write, and
    /// would wait behind this in etcd's log.
    fn revoke_later(&self, id: i64) {
        let shared = Arc::clone(self.shared);
        self.shared.tasks.spawn(async move {
            tokio::time::sleep(LATER).await;
            shared.leases.revoke(id).await;
        });
    }

    /// Takes the last place in etcd's queue.
    async fn queue(&mut self) -> Result<Attempt, Failure> {
        let Shared { keys, leases, clock, .. } = &**self.shared;
        let term = leases.grant(self.request.ttl.min(WAITING_TTL)).await?;
        let key = keys.own(&self.request.resource, term.id);
        let new = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        let value = self.value(term, false);
        match leases.put(vec![new], Vec::new(), &key, &value, term.id).await {
            Ok(Some(token)) => {
                self.waiting = Some(Waiting { key, token, term, kept_alive: clock.now() });
                Ok(Attempt::Again)
            }
            Ok(None) => Ok(Attempt::Again),
            Err(failure) => {
                leases.revoke(term.id).await;
                Err(failure)
            }
        }
    }

    async fn keep_waiting(&mut self) -> Result<(), Failure> {
        let Shared { leases, clock, .. } = &**self.shared;
        let Some(waiting) = &mut self.waiting else { return Ok(()) };
        if clock.now().since(waiting.kept_alive) < waiting.term.ttl / 4 {
            return Ok(());
        }
        match leases.keep_alive(waiting.term.id).await {
            Ok(_) => waiting.kept_alive = clock.now(),
            Err(Failure::NoSuchLease) => self.waiting = None,
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Makes the first key in etcd's queue a lease. Until the transaction is done, etcd may have let
    /// the key expire: then nothing was acquired.
    async fn confirm(&mut self) -> Result<Attempt, Failure> {
        let Shared { keys, leases, .. } = &**self.shared;
        let Some(own) = &self.waiting else { return Ok(Attempt::Again) };
        let term = leases.grant(self.request.ttl).await?;
        let value = self.value(term, true);
        let revision = own.token.as_i64();
        let when = vec![
            Compare::create_revision(own.key.clone(), CompareOp::Equal, revision),
            keys.each(&self.request.resource, CompareOp::Greater, revision - 1),
        ];
        match leases.put(when, Vec::new(), &own.key, &value, term.id).await {
            Ok(Some(token)) => {
                let lease = value.lease(self.request.resource.clone(), token);
                // Its key hangs on the other lease now.
                if let Some(own) = self.waiting.take() {
                    self.shared.given.note(&self.request.resource, &own.key, token);
                    self.revoke_later(own.term.id);
                }
                Ok(Attempt::Granted(lease))
            }
            Ok(None) => {
                leases.revoke(term.id).await;
                Ok(Attempt::Again)
            }
            Err(failure) => {
                leases.revoke(term.id).await;
                Err(failure)
            }
        }
    }

    /// What is in the key. The times are counted from before the etcd lease was asked for: nobody is
    /// told a later end than etcd's.
    fn value(&self, term: Term, is_acquired: bool) -> Value {
        let ttl = i64::try_from(term.ttl.as_millis()).unwrap_or(i64::MAX);
        let expires_at = term.expires_at.as_millis();
        Value {
            owner: self.request.owner.clone(),
            by: self.shared.id.clone(),
            ttl_ms: ttl.unsigned_abs(),
            acquired_at: is_acquired.then_some(expires_at.saturating_sub(ttl)),
            expires_at,
        }
    }
}
