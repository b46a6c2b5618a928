//! What other instances want of this one, and what becomes of those that are gone.
//!
//! Notifications are hints: what they say makes this instance admit less, never more, and it looks every second
//! without any. So one that is lost delays and does nothing else.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::others::{Due, Other};
use super::wire::{LookAnswer, RevokedColumns};
use super::{CONNECT_WITHIN, InstanceMetrics, Postgres};
use crate::fence::Resource;
use crate::metrics::Operation;
use crate::store::{Member, Revocation, StoreError};

/// The schema notifies on it.
const CHANNEL: &str = "fencegate";
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Before the listening connection is made again.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) fn spawn(
    store: &Postgres,
    member: &Arc<dyn Member>,
    metrics: &InstanceMetrics,
    stop: &CancellationToken,
    work: &TaskTracker,
) {
    let look_now = Arc::new(Notify::new());
    {
        let (store, member, stop) = (store.clone(), Arc::clone(member), stop.clone());
        let look_now = Arc::clone(&look_now);
        work.spawn(async move {
            stop.run_until_cancelled(listen(&store, &*member, &look_now)).await;
        });
    }
    let (store, member, stop) = (store.clone(), Arc::clone(member), stop.clone());
    let metrics = metrics.clone();
    work.spawn(async move {
        let looking = async {
            loop {
                // What it could not find out it finds out the next time.
                let _ = look(&store, &*member, &metrics).await;
                let _ = timeout(LOOK_EVERY, look_now.notified()).await;
            }
        };
        stop.run_until_cancelled(looking).await;
    });
}

/// Listens for ever, over one connection after the other.
async fn listen(store: &Postgres, member: &dyn Member, look_now: &Notify) {
    loop {
        if let Err(error) = listen_once(store, member, look_now).await {
            tracing::warn!(%error, "not listening for other instances; looking every second instead");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn listen_once(
    store: &Postgres,
    member: &dyn Member,
    look_now: &Notify,
) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(CONNECT_WITHIN)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with(store.0.direct.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    // What was said before is not said again.
    member.given_back(None);
    look_now.notify_one();
    // Ends with the connection: the next one begins with looking.
    while let Some(notification) = listener.try_recv().await? {
        match notification.payload().split_once(':') {
            Some(("given_back", name)) => {
                if let Ok(resource) = Resource::new(name) {
                    member.given_back(Some(&resource));
                }
            }
            Some(("revoked", what)) => revoked(store, member, look_now, what),
            _ => {}
        }
    }
    Ok(())
}

/// `what` is the instance and, after a colon, its grant. Where a later version says something else, looking helps.
fn revoked(store: &Postgres, member: &dyn Member, look_now: &Notify, what: &str) {
    let (id, grant) = what.split_once(':').unwrap_or((what, ""));
    let present = store.present().instance();
    if id.parse() != Ok(present.as_i64()) {
        return;
    }
    match revocation(grant) {
        Some(revocation) => member.revoked(present, vec![revocation]),
        None => look_now.notify_one(),
    }
}

/// What a notification says of a grant; the same as [`look`] finds.
pub(super) fn revocation(grant: &str) -> Option<Revocation> {
    serde_json::from_str::<RevokedColumns>(grant).ok()?.try_into().ok()
}

async fn look(
    store: &Postgres,
    member: &dyn Member,
    metrics: &InstanceMetrics,
) -> Result<(), StoreError> {
    let lease = store.present();
    let id = lease.instance();
    if !lease.is_live(store.0.clock.now()) {
        return Ok(());
    }
    let asked = json!({"instance": id.as_i64()});
    let LookAnswer { server, revoked, others } =
        store.call(Operation::Look, "fencegate_look", &asked).await?;
    if !store.is_known(&server) {
        return Ok(());
    }
    let revocations: Vec<Revocation> =
        revoked.into_iter().map(Revocation::try_from).collect::<Result<_, _>>()?;
    if !revocations.is_empty() {
        member.revoked(id, revocations);
    }
    let others: Vec<Other> = others.into_iter().map(Other::from).collect();
    let due = store.others().saw(&others, store.0.clock.now());
    for due in due {
        store.settle(due, metrics).await?;
    }
    Ok(())
}

impl Postgres {
    async fn settle(&self, due: Due, metrics: &InstanceMetrics) -> Result<(), StoreError> {
        match due {
            Due::Fence(id, renewals) => {
                let asked = json!({"instance": id.as_i64(), "renewals": renewals});
                if self.call(Operation::Instance, "fencegate_fence", &asked).await? {
                    metrics.fenced.inc();
                    tracing::warn!(instance = %id, "another instance did not renew its lease: fenced");
                }
            }
            Due::Bury(id, settled) => {
                let settle_ms = super::wire::millis(settled);
                let asked = json!({"instance": id.as_i64(), "settle_ms": settle_ms});
                let deleted: u64 = self.call(Operation::Instance, "fencegate_bury", &asked).await?;
                if deleted > 0 {
                    tracing::info!(instance = %id, deleted, "grants of a fenced instance have settled");
                }
            }
        }
        Ok(())
    }
}
