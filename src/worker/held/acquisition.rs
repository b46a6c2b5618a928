//! From the first request to a lease whose deadline is known.

use std::time::Duration;

use super::Terms;
use crate::clock::{Boottime, Clock};
use crate::worker::client::LeaseError;
use crate::worker::leases::Leases;
use crate::worker::wire::Lease;

/// The longest wait that a lease API has to take.
const WAIT_PER_REQUEST_MAX: Duration = Duration::from_secs(3600);
const BETWEEN_REQUESTS: Duration = Duration::from_millis(200);

/// Acquires; answers the lease and the moment before the request that confirmed it was sent.
pub(super) async fn acquire(
    leases: &Leases,
    clock: Clock,
    terms: &Terms,
) -> Result<(Lease, Boottime), LeaseError> {
    let Terms { resource, owner, ttl, wait, margin: _ } = terms;
    let give_up = clock.now() + *wait;
    let mut reached = false;
    loop {
        let sent_at = clock.now();
        let wait = give_up.since(sent_at).min(WAIT_PER_REQUEST_MAX);
        let acquired = leases.acquire(resource, owner, *ttl, wait).await;
        let confirmed = match acquired {
            Ok(lease) => confirm(leases, clock, lease, sent_at).await,
            Err(error) => Err(error),
        };
        let error = match confirmed {
            Ok(confirmed) => return Ok(confirmed),
            Err(error) => error,
        };
        // The server may wait less long than it was asked to, or be restarted meanwhile.
        let again = match &error {
            LeaseError::Held { .. } | LeaseError::Lost { .. } => true,
            LeaseError::Unreachable { sent, .. } => *sent || reached,
            _ => false,
        };
        reached = true;
        if !again || give_up <= clock.now() {
            return Err(error);
        }
        clock.sleep_until(clock.now() + BETWEEN_REQUESTS).await;
    }
}

/// A lease that came after a long wait began at an unknown moment since: only a renewal that is
/// sent now gives it a deadline that is of use.
async fn confirm(
    leases: &Leases,
    clock: Clock,
    lease: Lease,
    sent_at: Boottime,
) -> Result<(Lease, Boottime), LeaseError> {
    let now = clock.now();
    if now.since(sent_at) < lease.ttl() / 3 {
        return Ok((lease, sent_at));
    }
    let renewed = leases.renew(&lease.resource, &lease.owner, lease.token, None).await?;
    Ok((Lease { ttl_ms: renewed.ttl_ms, expires_at: renewed.expires_at, ..lease }, now))
}
