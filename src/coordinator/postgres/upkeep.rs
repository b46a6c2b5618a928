//! What goes on without being asked for: places are kept, expired leases swept, news listened for.
//!
//! Invariant: news only makes things faster. A gateway that hears nothing, as through a pooler
//! that gives every transaction another session, lets a waiter in one look later.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::time::{MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

use super::{Shared, verbs};
use crate::coordinator::CoordinatorError;
use crate::fence::Resource;

/// How often places are looked after. Kept places live several times as long.
const KEEP_EVERY: Duration = Duration::from_millis(250);
/// How often expired leases are looked for that nobody asked about.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Leases that one transaction of a sweep deletes at the most.
const SWEEP_LEASES: u32 = 256;

const CHANNEL: &str = "fencegate_leases";
/// A listener that hears nothing for this long tries its connection.
const SILENCE: Duration = Duration::from_secs(15);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// Looks after the places of this process. Without any it asks nothing.
pub(super) async fn keep(shared: Arc<Shared>, stop: CancellationToken) {
    let mut ticks = ticks(KEEP_EVERY);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let places = shared.places.all();
        if places.is_empty() {
            continue;
        }
        match verbs::keep(&shared.database, places.iter().map(|(_, id)| *id)).await {
            Ok(due) => {
                places.iter().filter(|(_, id)| due.contains(id)).for_each(|place| {
                    shared.places.tell(place);
                });
            }
            // Whoever waits tries for itself before long, and is told.
            Err(error) => tracing::debug!(%error, "places in queues were not kept; trying again"),
        }
    }
}

/// Deletes expired leases. Without any it is one look into an index.
pub(super) async fn sweep(shared: Arc<Shared>, stop: CancellationToken) {
    let mut ticks = ticks(SWEEP_EVERY);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match verbs::sweep(&shared.database, SWEEP_LEASES).await {
            Ok(expired) => {
                shared.expired(&expired);
                if expired.len() == SWEEP_LEASES as usize {
                    ticks.reset_immediately();
                }
            }
            Err(error) => tracing::warn!(%error, "expired leases were not swept; trying again"),
        }
    }
    shared.database.close().await;
}

/// Listens for leases that came free, on a connection of its own.
pub(super) async fn listen(
    shared: Arc<Shared>,
    options: PgConnectOptions,
    stop: CancellationToken,
) {
    let listening = async {
        loop {
            let Err(error) = listen_once(&shared, options.clone()).await;
            tracing::debug!(%error, "not listening for leases that come free; trying again");
            tokio::time::sleep(RECONNECT_AFTER).await;
        }
    };
    stop.run_until_cancelled(listening).await;
}

/// Listens until the connection breaks.
async fn listen_once(
    shared: &Shared,
    options: PgConnectOptions,
) -> Result<std::convert::Infallible, CoordinatorError> {
    let failed = |error: sqlx::Error| CoordinatorError::Unavailable(error.to_string());
    let silent = |_| CoordinatorError::Unavailable("no answer".to_owned());
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(CONNECT_WITHIN)
        .connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await.map_err(failed)?;
    timeout(CONNECT_WITHIN, listener.listen(CHANNEL)).await.map_err(silent)?.map_err(failed)?;
    loop {
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(news))) => {
                if let Ok(resource) = Resource::new(news.payload()) {
                    shared.places.tell_first(&resource);
                }
            }
            // It had to connect again. What was missed meanwhile, the next look finds.
            Ok(Ok(None)) => {}
            Ok(Err(error)) => return Err(failed(error)),
            Err(_) => {
                let probe = sqlx::raw_sql("SELECT 1").execute(&mut listener);
                timeout(CONNECT_WITHIN, probe).await.map_err(silent)?.map_err(failed)?;
            }
        }
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
