//! What is counted about TLS.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::TlsError;

/// Makes the series of each use of a certificate. The label is the use, as the configuration calls it.
#[derive(Clone)]
pub struct TlsMetrics {
    expiry: IntGaugeVec,
    reloads: IntCounterVec,
    handshakes: IntCounterVec,
}

/// The series of one use.
pub(super) struct Certificate {
    name: String,
    expiry: Option<IntGauge>,
    applied: IntCounter,
    refused: IntCounter,
}

impl TlsMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<TlsMetrics> {
        let expiry = IntGaugeVec::new(
            Opts::new(
                "fencegate_certificate_expiry_timestamp_seconds",
                "When the certificate in use ends, in seconds since 1970.",
            ),
            &["certificate"],
        )?;
        let reloads = IntCounterVec::new(
            Opts::new(
                "fencegate_certificate_reloads_total",
                "Times that changed files of a certificate were taken (applied), or refused, so that \
                 the certificate before them stayed in use.",
            ),
            &["certificate", "result"],
        )?;
        let handshakes = IntCounterVec::new(
            Opts::new(
                "fencegate_tls_handshakes_failed_total",
                "Client connections that did not get through the TLS handshake, or did not in time.",
            ),
            &["listener"],
        )?;
        registry.register(Box::new(expiry.clone()))?;
        registry.register(Box::new(reloads.clone()))?;
        registry.register(Box::new(handshakes.clone()))?;
        Ok(TlsMetrics { expiry, reloads, handshakes })
    }

    /// Counts the failed handshakes of a listener.
    #[must_use]
    pub fn handshakes_failed(&self, listener: &str) -> IntCounter {
        self.handshakes.with_label_values(&[listener])
    }

    pub(super) fn certificate(&self, name: &str, expiry: Option<i64>) -> Certificate {
        let reloads = |result| self.reloads.with_label_values(&[name, result]);
        let gauge = expiry.map(|at| {
            let gauge = self.expiry.with_label_values(&[name]);
            gauge.set(at);
            gauge
        });
        let (applied, refused) = (reloads("applied"), reloads("refused"));
        Certificate { name: name.to_owned(), expiry: gauge, applied, refused }
    }
}

impl Certificate {
    pub(super) fn applied(&self, expiry: Option<i64>) {
        if let (Some(gauge), Some(at)) = (&self.expiry, expiry) {
            gauge.set(at);
        }
        self.applied.inc();
        tracing::info!(certificate = self.name, expiry, "changed certificate files are in use");
    }

    pub(super) fn refused(&self, error: &TlsError) {
        self.refused.inc();
        tracing::error!(
            certificate = self.name,
            %error,
            "changed certificate files were refused; those before them stay in use"
        );
    }
}
