//! From the queue to the collector: OTLP over HTTP, in batches.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::wire::Wire;
use super::{Span, SpanMetrics};
use crate::clock::Clock;

const BATCH_SPANS: usize = 512;
/// How long spans are collected before they are sent.
const COLLECT: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Of a batch; a collector that is restarted loses none.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// Where spans go, and under which name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// `http://HOST:PORT`, below which is `/v1/traces`.
    pub url: String,
    /// The `service.name` of this gateway's spans.
    pub service: String,
}

/// See the module.
#[derive(Debug)]
pub struct Exporter {
    url: String,
    wire: Wire,
    metrics: SpanMetrics,
    waiting: mpsc::Receiver<Box<Span>>,
}

/// What became of a batch.
enum Sent {
    /// The collector took all but so many.
    Taken(u64),
    /// Another attempt may do better.
    Later(String),
    Refused(String),
}

impl Exporter {
    pub(super) fn new(
        collector: Collector,
        clock: Clock,
        metrics: SpanMetrics,
        waiting: mpsc::Receiver<Box<Span>>,
    ) -> Exporter {
        let Collector { url, service } = collector;
        let url = format!("{}/v1/traces", url.trim_end_matches('/'));
        Exporter { url, wire: Wire::new(service, clock), metrics, waiting }
    }

    /// Exports until there is nobody left who has spans; after `closing` without collecting any.
    pub async fn run(mut self, closing: CancellationToken) {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER_WITHIN)
            .build();
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(%error, "spans are not exported");
                return;
            }
        };
        let mut batch = Vec::with_capacity(BATCH_SPANS);
        while self.waiting.recv_many(&mut batch, BATCH_SPANS).await > 0 {
            self.export(&client, &batch, &closing).await;
            let was_full = batch.len() == BATCH_SPANS;
            batch.clear();
            if !was_full {
                let _ = closing.run_until_cancelled(tokio::time::sleep(COLLECT)).await;
            }
        }
    }

    async fn export(
        &self,
        client: &reqwest::Client,
        batch: &[Box<Span>],
        closing: &CancellationToken,
    ) {
        let (spans, body) = (batch.len() as u64, self.wire.request(batch).encode_to_vec());
        let mut why = String::new();
        for attempt in 1..=ATTEMPTS {
            match self.send(client, body.clone()).await {
                Sent::Taken(rejected) => {
                    self.metrics.exported.inc_by(spans.saturating_sub(rejected));
                    self.metrics.failed.inc_by(rejected.min(spans));
                    return;
                }
                Sent::Later(error) => why = error,
                Sent::Refused(error) => {
                    why = error;
                    break;
                }
            }
            let wait = closing.run_until_cancelled(tokio::time::sleep(PAUSE));
            if attempt < ATTEMPTS && wait.await.is_none() {
                break;
            }
        }
        self.metrics.failed.inc_by(spans);
        tracing::warn!(spans, error = why, "the collector did not take spans");
    }

    async fn send(&self, client: &reqwest::Client, body: Vec<u8>) -> Sent {
        let request = client.post(&self.url).header(CONTENT_TYPE, "application/x-protobuf");
        let answer = match request.body(body).send().await {
            Ok(answer) => answer,
            Err(error) => return Sent::Later(error.to_string()),
        };
        match answer.status() {
            status if status.is_success() => {
                // What the collector left out of a batch that it took.
                let body = answer.bytes().await.unwrap_or_default();
                let said = ExportTraceServiceResponse::decode(body).unwrap_or_default();
                let rejected = said.partial_success.map_or(0, |partial| partial.rejected_spans);
                Sent::Taken(u64::try_from(rejected).unwrap_or(0))
            }
            status @ (StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT) => Sent::Later(status.to_string()),
            status => Sent::Refused(status.to_string()),
        }
    }
}
