//! One acquisition, from the request to the moment at which the caller has the lease.
//!
//! Only the head of a resource's queue may take a lease that has come free.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::rows::{self, Attempt};
use crate::clock::WallTime;
use crate::coordinator::{Acquired, CoordinatorError, delivery};
use crate::fence::{Owner, Resource};

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) resource: Resource,
    pub(super) owner: Owner,
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
}

/// Acquires, and hands over or releases.
pub(super) async fn run(shared: Arc<Shared>, request: Request, mut caller: delivery::Sender) {
    let Some(acquired) = contend(&shared, &request, &mut caller).await.transpose() else {
        return;
    };
    if let Some(lease) = caller.deliver(acquired).await
        && let Err(error) = shared.release(lease.resource, lease.owner, lease.token).await
    {
        tracing::warn!(%error, "an abandoned lease was not released; it ends by expiry");
    }
}

/// Tries until the lease is granted, the wait is over, or the caller is gone (`None`).
async fn contend(
    shared: &Shared,
    request: &Request,
    caller: &mut delivery::Sender,
) -> Result<Option<Acquired>, CoordinatorError> {
    let began = shared.clock.now();
    let deadline = began + request.wait;
    let place = shared.queues.join(&request.resource)?;
    loop {
        let is_head = place.is_head();
        match try_once(shared, request, is_head).await? {
            Attempt::Granted(lease, superseded) => {
                if let Some(old) = superseded {
                    shared.metrics.superseded(&old, lease.acquired_at);
                    // The new lease may end earlier than the head of the queue was told.
                    shared.queues.tell_head(&lease.resource);
                }
                shared.metrics.acquired(&lease, shared.clock.now().since(began));
                return Ok(Some(Acquired::Granted(lease)));
            }
            Attempt::Held(lease) => {
                let patience = deadline.since(shared.clock.now());
                if patience.is_zero() {
                    shared.metrics.refused_as_held();
                    return Ok(Some(Acquired::Held(lease)));
                }
                tokio::select! {
                    () = caller.abandoned() => return Ok(None),
                    () = place.told() => {}
                    () = expiry(shared, lease.expires_at), if is_head => {}
                    () = tokio::time::sleep(patience) => {}
                }
            }
            // The head takes it or leaves within a commit's time, whatever the caller's patience.
            Attempt::Free => tokio::select! {
                () = caller.abandoned() => return Ok(None),
                () = place.told() => {}
            },
        }
    }
}

async fn try_once(
    shared: &Shared,
    request: &Request,
    is_head: bool,
) -> Result<Attempt, CoordinatorError> {
    let Request { resource, owner, ttl, .. } = request.clone();
    shared
        .call(move |connection, now| {
            Box::pin(rows::attempt(connection, now, resource, owner, ttl, is_head))
        })
        .await
}

async fn expiry(shared: &Shared, expires_at: WallTime) {
    let left = expires_at.since(shared.clock.wall());
    shared.clock.sleep_until(shared.clock.now() + left).await;
}
