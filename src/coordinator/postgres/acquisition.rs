//! One acquisition, from the request to the moment at which the caller has the lease.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::places::Place;
use super::verbs::{self, Attempt, Found};
use crate::clock::Boottime;
use crate::coordinator::{Acquired, CoordinatorError, delivery};
use crate::fence::{Owner, Resource};

/// While a lease is free and others came first. News of who took it may come before the place that it is for is known
/// here.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

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
    let mut place = None;
    let acquired = contend(&shared, &request, &mut caller, &mut place).await.transpose();
    if let Some(place) = place {
        leave(&shared, place).await;
    }
    let Some(acquired) = acquired else { return };
    if let Some(lease) = caller.deliver(acquired).await
        && let Err(error) = shared.release(lease.resource, lease.owner, lease.token).await
    {
        tracing::warn!(%error, "an abandoned lease was not released; it ends by expiry");
    }
}

/// Before the place is dropped: from then on nobody here counts as waiting.
async fn leave(shared: &Shared, place: Place) {
    if let Err(error) = verbs::leave(&shared.database, place.id()).await {
        tracing::debug!(%error, "a place in a queue was not given up; it ends by expiry");
    }
}

/// Tries until the lease is granted, the wait is over, or the caller is gone (`None`).
async fn contend(
    shared: &Shared,
    request: &Request,
    caller: &mut delivery::Sender,
    place: &mut Option<Place>,
) -> Result<Option<Acquired>, CoordinatorError> {
    let Request { resource, owner, ttl, wait } = request;
    let _room = shared.places.room()?;
    let began = shared.clock.now();
    let deadline = began + *wait;
    loop {
        let attempt = Attempt {
            resource,
            owner,
            ttl: *ttl,
            place: place.as_ref().map(Place::id),
            waits: shared.clock.now() < deadline,
        };
        let (found, expired) = verbs::attempt(&shared.database, attempt).await?;
        shared.expired(&expired);
        match found {
            Found::Granted(lease, superseded) => {
                *place = None;
                if let Some(old) = superseded {
                    shared.metrics.superseded(&old, lease.acquired_at);
                }
                shared.metrics.acquired(&lease, shared.clock.now().since(began));
                return Ok(Some(Acquired::Granted(lease)));
            }
            Found::Held(lease) => {
                *place = None;
                shared.metrics.refused_as_held();
                return Ok(Some(Acquired::Held(lease)));
            }
            Found::Queued { place: id, holder, ends_in } => {
                let place = place.get_or_insert_with(|| shared.places.keep(resource, id));
                // Without a holder, who came first takes it or is passed over soon, whatever the
                // caller's patience.
                let give_up = holder.is_some().then_some(deadline);
                let again = holder.is_none().then_some(LOOK_AGAIN);
                tokio::select! {
                    () = caller.abandoned() => return Ok(None),
                    () = place.told() => {}
                    () = shared.after(ends_in) => {}
                    () = shared.after(again) => {}
                    () = shared.at(give_up) => {}
                }
            }
        }
    }
}

impl Shared {
    async fn after(&self, span: Option<Duration>) {
        self.at(span.map(|span| self.clock.now() + span)).await;
    }

    async fn at(&self, moment: Option<Boottime>) {
        match moment {
            Some(moment) => self.clock.sleep_until(moment).await,
            None => std::future::pending().await,
        }
    }
}
