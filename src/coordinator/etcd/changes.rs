//! Renewing and ending a lease that is held. Each change is made on the very key whose create
//! revision is the token, or not at all: never on that of a later holder.

use std::time::Duration;

use etcd_client::{Txn, TxnOp};

use super::Shared;
use super::connection::Failure;
use super::layout::{Claim, Value};
use crate::coordinator::{Lease, Released};
use crate::fence::{Owner, Resource, Token};

impl Shared {
    /// The claim of this owner with this token, if it is the holder's.
    async fn held(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Token,
    ) -> Result<Result<(Claim, Value), Released>, Failure> {
        let Some(holder) = self.look(resource, None).await?.holder else {
            return Ok(Err(Released::NotFound));
        };
        Ok(match holder.value.clone() {
            Some(value) if holder.token == token && value.owner == *owner => Ok((holder, value)),
            _ => Err(Released::OwnerMismatch),
        })
    }

    /// Keeps the etcd lease alive, and writes the new end into the key, in a transaction that checks
    /// that it is still the same key. Another TTL takes another etcd lease: theirs never change.
    pub(super) async fn renew(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Token,
        ttl: Option<Duration>,
    ) -> Result<Option<Lease>, Failure> {
        let Ok((claim, mut value)) = self.held(resource, owner, token).await? else {
            return Ok(None);
        };
        let wanted = self.leases.rounded(ttl.unwrap_or(value.ttl()));
        let other = if wanted == self.leases.rounded(value.ttl()) {
            match self.leases.keep_alive(claim.lease_id).await {
                Ok(began) => value.expires_at = (began + value.ttl()).as_millis(),
                Err(Failure::NoSuchLease) => return Ok(None),
                Err(failure) => return Err(failure),
            }
            None
        } else {
            let term = self.leases.grant(ttl.unwrap_or(value.ttl())).await?;
            value.expires_at = term.expires_at.as_millis();
            value.ttl_ms = u64::try_from(term.ttl.as_millis()).unwrap_or(u64::MAX);
            Some(term.id)
        };
        value.by.clone_from(&self.id);
        let key = String::from_utf8_lossy(&claim.key).into_owned();
        let lease_id = other.unwrap_or(claim.lease_id);
        let put = self.leases.put(vec![claim.stands()], Vec::new(), &key, &value, lease_id).await;
        let renewed = match put {
            Err(Failure::NoSuchLease) => None,
            put => put?,
        };
        if other.is_some() {
            // The one that the key does not hang on: the old one, or, if it was too late, the new one.
            self.leases.revoke(if renewed.is_some() { claim.lease_id } else { lease_id }).await;
        }
        Ok(renewed.map(|token| value.lease(resource.clone(), token)))
    }

    pub(super) async fn release(
        &self,
        resource: Resource,
        owner: Owner,
        token: Token,
    ) -> Result<Released, Failure> {
        let claim = match self.held(&resource, &owner, token).await? {
            Ok((claim, _)) => claim,
            Err(answer) => return Ok(answer),
        };
        if !self.delete(&claim).await? {
            return Ok(Released::NotFound);
        }
        let now = self.clock.wall();
        self.metrics.released(&claim.lease(&resource, now), now);
        self.queues.tell_head(&resource);
        self.leases.revoke(claim.lease_id).await;
        Ok(Released::Released)
    }

    /// Deletes this very key, and never one that came after it. `false`: it is gone already.
    pub(super) async fn delete(&self, claim: &Claim) -> Result<bool, Failure> {
        let txn =
            Txn::new().when([claim.stands()]).and_then([TxnOp::delete(claim.key.clone(), None)]);
        let connection = self.leases.connection();
        let answer = connection.call(async |client| client.kv_client().txn(txn.clone()).await);
        Ok(answer.await?.succeeded())
    }
}
