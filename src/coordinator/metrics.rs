//! What is told of leases: for each event one count and one log line, made in one place so that
//! they never disagree.
//!
//! Labels never name a resource or an owner; the log lines do.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Registry};

use super::{CoordinatorError, Lease};
use crate::clock::WallTime;
use crate::fence::{Owner, Resource, Token};

/// How long acquiring and renewing takes, in seconds: from a commit to a long queue.
const LATENCY_BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0];
/// How long leases live, in seconds: from one short job to a worker that stays for days.
const AGE_BUCKETS: [f64; 12] =
    [0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0];

/// Counts of leases. Clones share their numbers.
#[derive(Clone, Debug)]
pub struct LeaseMetrics {
    /// Acquisitions under way; nearly all of them wait for another holder's lease to end.
    pub(crate) waiters: IntGauge,
    acquired: IntCounter,
    released: IntCounter,
    lost: IntCounter,
    superseded: IntCounter,
    held: IntCounter,
    pub(crate) renewals_failed: IntCounter,
    wait: Histogram,
    age: Histogram,
    renewal: Histogram,
}

impl LeaseMetrics {
    /// Makes the series and adds them to `registry`, all at zero.
    ///
    /// # Errors
    /// The registry has series of these names already.
    pub fn register(registry: &Registry) -> prometheus::Result<LeaseMetrics> {
        let counter = |name, help| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            prometheus::Result::Ok(counter)
        };
        let histogram = |name, help, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let histogram = Histogram::with_opts(options)?;
            registry.register(Box::new(histogram.clone()))?;
            prometheus::Result::Ok(histogram)
        };
        let waiters = IntGauge::new("fencegate_lease_waiters", "Acquisitions under way")?;
        registry.register(Box::new(waiters.clone()))?;
        Ok(LeaseMetrics {
            waiters,
            acquired: counter("fencegate_leases_acquired_total", "Leases acquired")?,
            released: counter("fencegate_leases_released_total", "Leases ended by release")?,
            lost: counter("fencegate_leases_lost_total", "Leases ended by expiry")?,
            superseded: counter(
                "fencegate_leases_superseded_total",
                "Leases ended because their own owner acquired again",
            )?,
            held: counter(
                "fencegate_lease_acquisitions_held_total",
                "Acquisitions refused because another owner held the lease",
            )?,
            renewals_failed: counter(
                "fencegate_lease_renewals_failed_total",
                "Renewals refused because the lease was over or not the caller's, or not confirmed by the \
                 coordinator",
            )?,
            wait: histogram(
                "fencegate_lease_acquisition_wait_seconds",
                "From the request for a lease to the lease",
                &LATENCY_BUCKETS,
            )?,
            age: histogram(
                "fencegate_lease_age_seconds",
                "From the acquisition of a lease to its end",
                &AGE_BUCKETS,
            )?,
            renewal: histogram(
                "fencegate_lease_renewal_duration_seconds",
                "From the request for a renewal to its answer",
                &LATENCY_BUCKETS,
            )?,
        })
    }

    pub(crate) fn acquired(&self, lease: &Lease, waited: Duration) {
        self.acquired.inc();
        self.wait.observe(waited.as_secs_f64());
        let Lease { resource, owner, token, .. } = lease;
        tracing::info!(%resource, %owner, %token, "lease acquired");
    }

    pub(crate) fn refused_as_held(&self) {
        self.held.inc();
    }

    pub(crate) fn renewal_answered(&self, latency: Duration) {
        self.renewal.observe(latency.as_secs_f64());
    }

    pub(crate) fn renewal_refused(&self, resource: &Resource, owner: &Owner, token: Token) {
        self.renewals_failed.inc();
        tracing::info!(%resource, %owner, %token, "lease renewal refused");
    }

    pub(crate) fn renewal_unconfirmed(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Token,
        error: &CoordinatorError,
    ) {
        self.renewals_failed.inc();
        tracing::warn!(%resource, %owner, %token, %error, "lease renewal not confirmed");
    }

    pub(crate) fn expired(&self, leases: &[Lease]) {
        for lease in leases {
            self.lost.inc();
            self.ended(lease, lease.expires_at, "lease expired");
        }
    }

    pub(crate) fn released(&self, lease: &Lease, at: WallTime) {
        self.released.inc();
        self.ended(lease, at, "lease released");
    }

    pub(crate) fn superseded(&self, lease: &Lease, at: WallTime) {
        self.superseded.inc();
        self.ended(lease, at, "lease superseded by its own owner");
    }

    fn ended(&self, lease: &Lease, at: WallTime, event: &'static str) {
        self.age.observe(at.since(lease.acquired_at).as_secs_f64());
        let Lease { resource, owner, token, .. } = lease;
        tracing::info!(%resource, %owner, %token, "{event}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_exists_at_zero_from_the_start() {
        let registry = Registry::new();
        LeaseMetrics::register(&registry).unwrap();
        let families = registry.gather();
        assert_eq!(families.len(), 10);
        for family in families {
            assert!(family.name().starts_with("fencegate_lease"), "{}", family.name());
            assert!(family.get_metric()[0].get_label().is_empty());
        }
        assert!(LeaseMetrics::register(&registry).is_err(), "the same names twice");
    }
}
