//! The export of spans, from the start to what is left at the end.

use prometheus::Registry;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::LAST_ANSWERS;
use crate::clock::Clock;
use crate::config::{Config, Telemetry};
use crate::spans::{Collector, SpanMetrics, Spans};

/// The export of spans, where there is a collector.
pub(super) struct Traces {
    /// For the gateway, which alone makes spans: when it has ended, the export ends by itself.
    pub(super) spans: Option<Spans>,
    /// Spans are collected no longer, but sent at once.
    pub(super) closing: CancellationToken,
    export: TaskTracker,
}

impl Traces {
    pub(super) fn start(
        config: &Config,
        clock: Clock,
        registry: &Registry,
    ) -> Result<Traces, prometheus::Error> {
        let (closing, export) = (CancellationToken::new(), TaskTracker::new());
        let metrics = SpanMetrics::register(registry)?;
        let Telemetry { otlp, service } = config.telemetry.clone();
        let spans = otlp.map(|url| {
            let (spans, exporter) = Spans::new(Collector { url, service }, clock, metrics);
            export.spawn(exporter.run(closing.clone()));
            spans
        });
        export.close();
        Ok(Traces { spans, closing, export })
    }

    /// Waits until what is left was sent. Only the gateway's own end makes that come about.
    pub(super) async fn flush(self) {
        if timeout(LAST_ANSWERS, self.export.wait()).await.is_err() {
            tracing::warn!("the collector did not take the last spans in time");
        }
    }
}
