//! The tokens of a few named resources, as metrics.
//!
//! Opt-in, since the resource is a label: the list is of the configuration, and bounded there. Looked
//! up at each scrape; what cannot be looked up in time is left out rather than shown as it was.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};
use tokio::time::timeout;

use crate::coordinator::{Coordinator, Holding};
use crate::fence::{Resource, Token};
use crate::fences::Fences;

/// A store that stands still must not take the other metrics along: scrapes often end at 10 s.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// What looks the tokens up.
pub struct TokenGauges {
    /// Whose.
    pub resources: Vec<Resource>,
    /// Knows the highest ones.
    pub fences: Arc<Fences>,
    /// Knows the current ones.
    pub coordinator: Arc<dyn Coordinator>,
}

impl TokenGauges {
    /// The family of the metric, if it has any series. Zero means that there is no such token.
    pub async fn gather(&self) -> Vec<MetricFamily> {
        let options = Opts::new(
            "fencegate_token",
            "Token of a resource that the configuration names: of the lease that is held now \
             (current), and the fence's mark (highest); 0 if there is none.",
        );
        let Ok(gauges) = IntGaugeVec::new(options, &["resource", "kind"]) else {
            return Vec::new();
        };
        let set = |resource: &Resource, kind, token: Option<Token>| {
            let gauge = gauges.with_label_values(&[resource.as_str(), kind]);
            gauge.set(token.map_or(0, Token::as_i64));
        };
        join_all(self.resources.iter().map(async |resource| {
            let current = timeout(LOOK_WITHIN, self.coordinator.holder(resource.clone()));
            let highest = timeout(LOOK_WITHIN, self.fences.show(resource.clone()));
            let (current, highest) = futures_util::future::join(current, highest).await;
            if let Ok(Ok(Holding { lease, .. })) = current {
                set(resource, "current", lease.map(|lease| lease.token));
            }
            if let Ok(Ok(row)) = highest {
                set(resource, "highest", row.map(|row| row.highest_token));
            }
        }))
        .await;
        let mut families = gauges.collect();
        // The encoder takes a family without series for a mistake.
        families.retain(|family| !family.get_metric().is_empty());
        families
    }
}
