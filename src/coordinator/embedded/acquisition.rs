//! One acquisition, from the request to the moment at which the caller has the lease.
//!
//! It runs in a task of its own, so that it cannot be dropped between the commit that issues a
//! token and the answer. If the caller is gone by then, the lease is released: the token stays a
//! gap in the sequence that grants nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Shared;
use super::rows::{self, Attempt};
use crate::clock::WallTime;
use crate::coordinator::{Acquired, CoordinatorError};
use crate::fence::{Owner, Resource};

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) resource: Resource,
    pub(super) owner: Owner,
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
}

/// The answer, and the means to say that it has arrived. Dropping that, wherever the answer is on
/// its way, says that nobody has it.
pub(super) type Answer = (Acquired, oneshot::Sender<()>);
type Reply = oneshot::Sender<Result<Answer, CoordinatorError>>;

/// Acquires, and hands over or releases.
pub(super) async fn run(shared: Arc<Shared>, request: Request, mut reply: Reply) {
    let acquired = match contend(&shared, &request, &mut reply).await {
        Ok(Some(acquired)) => acquired,
        Ok(None) => return,
        Err(error) => {
            // A caller that is gone needs no answer.
            let _ = reply.send(Err(error));
            return;
        }
    };
    let issued = match &acquired {
        Acquired::Granted(lease) => Some(lease.clone()),
        Acquired::Held(_) => None,
    };
    let (arrived, arrival) = oneshot::channel();
    let sent = reply.send(Ok((acquired, arrived))).is_ok();
    if let Some(lease) = issued
        && !(sent && arrival.await.is_ok())
        && let Err(error) = shared.release(lease.resource, lease.owner, lease.token).await
    {
        tracing::warn!(%error, "an abandoned lease was not released; it ends by expiry");
    }
}

/// Tries until the lease is granted, the wait is over, or the caller is gone (`None`).
async fn contend(
    shared: &Shared,
    request: &Request,
    reply: &mut Reply,
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
                    () = reply.closed() => return Ok(None),
                    () = place.told() => {}
                    () = expiry(shared, lease.expires_at), if is_head => {}
                    () = tokio::time::sleep(patience) => {}
                }
            }
            // The head takes it or leaves within a commit's time, whatever the caller's patience.
            Attempt::Free => tokio::select! {
                () = reply.closed() => return Ok(None),
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
