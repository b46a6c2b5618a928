//! Watches the leases end, for those who wait here and for the counts.
//!
//! One watch for all leases, of deletions alone, however many wait. An event only says that it is
//! worth a look: who holds a lease is always asked for. So a watch that breaks off loses nothing but
//! counts: it is resumed after the last revision that it saw, and if that is compacted away, from
//! now on; everybody who waits looks then.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{WatchFilterType, WatchOptions, WatchResponse, WatchStream};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::connection::Failure;
use super::layout::Claim;

/// Between the attempts to watch.
const PAUSE: Duration = Duration::from_millis(200);

/// Watches from revision `next` on, or from now on, until told to stop.
pub(super) async fn watch(shared: Arc<Shared>, next: Option<i64>, stop: CancellationToken) {
    let mut watcher = Watcher { shared, next };
    stop.run_until_cancelled(async {
        loop {
            match watcher.begin().await {
                Ok(stream) => watcher.follow(stream).await,
                Err(Failure::Compacted) => watcher.next = None,
                Err(failure) => {
                    tracing::debug!(error = %failure, "leases are not watched; trying again")
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
}

struct Watcher {
    shared: Arc<Shared>,
    /// The revision to go on from.
    next: Option<i64>,
}

impl Watcher {
    async fn begin(&self) -> Result<WatchStream, Failure> {
        let options = WatchOptions::new()
            .with_prefix()
            .with_prev_key()
            .with_progress_notify()
            .with_filters([WatchFilterType::NoPut])
            .with_start_revision(self.next.unwrap_or(0));
        let all = self.shared.keys.all();
        self.shared
            .leases
            .connection()
            .call(async |client| {
                client.watch_client().watch(all.clone(), Some(options.clone())).await
            })
            .await
    }

    /// Returns when the watch has broken off.
    async fn follow(&mut self, mut stream: WatchStream) {
        // What ended before the watch began was not told.
        self.shared.queues.tell_all_heads();
        loop {
            match stream.message().await {
                Ok(Some(response)) if self.waits_for_a_lost_history(&response) => {
                    self.next = None;
                    return;
                }
                Ok(Some(response)) if !response.canceled() => self.note(&response),
                Ok(Some(response)) => {
                    if response.compact_revision() > 0 {
                        self.next = Some(response.compact_revision());
                    }
                    return;
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Whether etcd, at the beginning of a watch, is behind what was seen of it: it was wiped or restored, and would
    /// tell nothing until its revisions are there again. (Or a member lags: then some ends are told twice.)
    fn waits_for_a_lost_history(&self, response: &WatchResponse) -> bool {
        let at = response.header().map_or(i64::MAX, |header| header.revision());
        response.created() && self.next.is_some_and(|next| at.saturating_add(1) < next)
    }

    fn note(&mut self, response: &WatchResponse) {
        let Shared { keys, given, queues, metrics, clock, id, .. } = &*self.shared;
        for event in response.events() {
            let Some(kv) = event.kv() else { continue };
            let Some(resource) = keys.resource(kv.key()) else { continue };
            given.ended(&resource, kv.key());
            queues.tell_head(&resource);
            let Some(ended) = event.prev_kv().and_then(Claim::of) else { continue };
            let Some(value) = ended.value.filter(|value| value.by == *id) else { continue };
            // A lease that was released, or superseded, was so before its time was over. Each
            // gateway counts those that it gave last.
            if value.acquired_at.is_some() && value.expires_at <= clock.wall().as_millis() {
                metrics.expired(&[value.lease(resource, ended.token)]);
            }
        }
        if let Some(header) = response.header() {
            self.next = Some(header.revision() + 1);
        }
    }
}
