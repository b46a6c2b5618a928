//! Questions to etcd. All of them are linearizable: they go through a quorum, so that a member that
//! was cut off from the others cannot name a holder of yesterday.

use std::collections::BTreeMap;

use async_trait::async_trait;
use etcd_client::{GetOptions, KeyValue, TxnOp};
use futures_util::future::try_join_all;

use super::Shared;
use super::connection::Failure;
use super::given::First;
use super::layout::Claim;
use super::sentinel::Snapshot;
use crate::coordinator::guard::Holders;
use crate::coordinator::{CoordinatorError, Holding, Lease};
use crate::fence::{Epoch, Resource};

/// Another gateway may mark etcd's history between a question and the look at its answer, and a key that was asked for
/// may be gone. Not often.
const LOOKS: usize = 4;
/// Keys that one page of a list reads.
const PAGE_KEYS: i64 = 1000;
/// Claims of one lease that a transaction can name; etcd takes at most 128 operations.
pub(super) const MOST_CLAIMS: usize = 100;

/// What an acquisition has to know before it does something.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) holder: Option<Claim>,
    /// True as well if there is no own key to look for.
    pub(super) own_is_there: bool,
}

impl Shared {
    /// Looks at the holder, and whether our own key is still there.
    pub(super) async fn look(
        &self,
        resource: &Resource,
        own_key: Option<&str>,
    ) -> Result<Look, Failure> {
        let mut reads = vec![self.keys.read(resource, 1)];
        reads.extend(own_key.map(|key| TxnOp::get(key, None)));
        let (mut found, _) = self.read(reads).await?;
        let own_is_there = own_key.is_none() || found.pop().is_some_and(|own| !own.is_empty());
        let holder = found.first().and_then(|claims| claims.first()).and_then(Claim::of);
        Ok(Look { holder, own_is_there })
    }

    /// The claims of a lease, the holder's first, and the revision at which they were read. If there
    /// are more than [`MOST_CLAIMS`], more than that are answered, but not all.
    pub(super) async fn claims(&self, resource: &Resource) -> Result<(Vec<Claim>, i64), Failure> {
        let limit = i64::try_from(MOST_CLAIMS + 1).unwrap_or(i64::MAX);
        let (mut found, revision) = self.read(vec![self.keys.read(resource, limit)]).await?;
        let claims: Vec<_> = found.pop().iter().flatten().filter_map(Claim::of).collect();
        Ok((claims, revision))
    }

    async fn read(&self, reads: Vec<TxnOp>) -> Result<(Vec<Vec<KeyValue>>, i64), Failure> {
        let found = self.leases.connection().read(reads).await?;
        Ok((found.keys, found.revision))
    }

    /// The holders of some leases, and the epoch of the history that they were read from, in one
    /// request.
    pub(super) async fn holders(
        &self,
        resources: &[Resource],
    ) -> Result<Vec<Holding>, CoordinatorError> {
        let mut given: Vec<_> =
            resources.iter().map(|resource| self.given.take(resource)).collect();
        for _ in 0..LOOKS {
            let reads = resources.iter().zip(&given).map(|(resource, given)| match given {
                Some(First { key, .. }) => TxnOp::get(key.clone(), None),
                None => self.keys.read(resource, 1),
            });
            let mut reads: Vec<_> = reads.collect();
            let check = match &self.guard {
                Some(guard) => Some(guard.begin().await?),
                None => None,
            };
            if let Some((guard, check)) = self.guard.as_ref().zip(check.as_ref()) {
                reads.push(guard.sentinel().read(&check.id));
            }
            let mut found = self.leases.connection().read(reads).await?;
            let epoch = match (&self.guard, check) {
                (Some(guard), Some(check)) => {
                    let snapshot = Snapshot::of(&mut found);
                    guard.verify(check, snapshot).await?
                }
                _ => Some(Epoch::FIRST),
            };
            let Some(epoch) = epoch else { continue };
            let mut are_there = true;
            for (first, claims) in given.iter_mut().zip(&found.keys) {
                let token = claims.first().and_then(Claim::of).map(|claim| claim.token);
                if first.as_ref().is_some_and(|first| token != Some(first.token)) {
                    // Of this one the whole place is read.
                    (*first, are_there) = (None, false);
                }
            }
            if !are_there {
                continue;
            }
            let now = self.clock.wall();
            let holding = |(resource, claims): (&Resource, &Vec<KeyValue>)| {
                let claim = claims.first().and_then(Claim::of);
                Holding { lease: claim.map(|claim| claim.lease(resource, now)), epoch }
            };
            return Ok(resources.iter().zip(&found.keys).map(holding).collect());
        }
        let why = "its answers are of another history than the one that is known; are all of \
                   coordinator.url members of one cluster?";
        Err(CoordinatorError::Unavailable(why.to_owned()))
    }

    /// One lease with its times, also if it is another program's.
    pub(super) async fn show(&self, resource: &Resource) -> Result<Option<Lease>, Failure> {
        match self.look(resource, None).await?.holder {
            Some(claim) => self.lease(resource, &claim).await,
            None => Ok(None),
        }
    }

    /// The lease of a claim; `None` if it is over.
    pub(super) async fn lease(
        &self,
        resource: &Resource,
        claim: &Claim,
    ) -> Result<Option<Lease>, Failure> {
        let now = self.clock.wall();
        let mut lease = claim.lease(resource, now);
        if claim.value.is_none() && claim.lease_id != 0 {
            let Some((ttl, left)) = self.leases.time_left(claim.lease_id).await? else {
                return Ok(None);
            };
            // When it was acquired nobody wrote down; not after its last renewal.
            let expires_at = now + left;
            lease = Lease { ttl, expires_at, acquired_at: expires_at - ttl, ..lease };
        }
        Ok(Some(lease))
    }

    /// Live leases in the order of their resources. etcd has them in the order of their keys, which
    /// is another one, so each page looks at all keys; memory is needed for one page alone.
    pub(super) async fn list(
        &self,
        after: Option<&Resource>,
        limit: usize,
    ) -> Result<Vec<Lease>, Failure> {
        let mut holders: BTreeMap<Resource, Claim> = BTreeMap::new();
        let mut from = self.keys.all().into_bytes();
        let end = after_all(&from);
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE_KEYS);
            let (mut found, _) = self.read(vec![TxnOp::get(from, Some(options))]).await?;
            let keys = found.pop().unwrap_or_default();
            for kv in &keys {
                let Some(resource) = self.keys.resource(kv.key()) else { continue };
                let Some(claim) = Claim::of(kv) else { continue };
                if after.is_some_and(|after| resource <= *after) {
                    continue;
                }
                let first = holders.entry(resource).or_insert_with(|| claim.clone());
                if claim.token < first.token {
                    *first = claim;
                }
                if holders.len() > limit {
                    holders.pop_last();
                }
            }
            match keys.last() {
                Some(last) if keys.len() >= usize::try_from(PAGE_KEYS).unwrap_or(0) => {
                    from = [last.key(), &[0]].concat();
                }
                _ => break,
            }
        }
        let leases = holders.iter().map(|(resource, claim)| self.lease(resource, claim));
        Ok(try_join_all(leases).await?.into_iter().flatten().collect())
    }
}

#[async_trait]
impl Holders for Shared {
    async fn list(
        &self,
        after: Option<Resource>,
        limit: usize,
    ) -> Result<Vec<Lease>, CoordinatorError> {
        Ok(Shared::list(self, after.as_ref(), limit).await?)
    }
}

/// What comes after everything that begins with these bytes, which end in `/`.
fn after_all(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
