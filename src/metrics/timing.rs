//! Histograms of durations, with an exemplar for each bucket.
//!
//! They stand beside those of the `prometheus` crate, which have no exemplars and take twice the atomic steps:
//! an observation here is two additions and the look at a flag.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Registry, Result};

use super::exemplar::{Exemplars, Slots};
use crate::trace::TraceId;

/// Upper bounds of buckets in nanoseconds, rising.
pub(super) type Bounds = &'static [u64];

const NANOS_PER_SECOND: f64 = 1e9;

/// One series. Clones share their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Timing(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bounds: Bounds,
    /// One more than bounds; each counts what is above the bound before.
    counts: Box<[AtomicU64]>,
    sum_nanos: AtomicU64,
    slots: Slots,
}

/// All series of one name: one of each value of its label, or a single one.
#[derive(Clone, Debug)]
pub(crate) struct Timings {
    desc: Desc,
    bounds: Bounds,
    exemplars: Exemplars,
    series: Arc<Mutex<BTreeMap<String, Timing>>>,
}

impl Timing {
    /// Counts a duration of the trace.
    pub(crate) fn observe(&self, took: Duration, trace_id: TraceId) {
        let Inner { bounds, counts, sum_nanos, slots } = &*self.0;
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bounds.partition_point(|bound| *bound < nanos);
        counts[bucket].fetch_add(1, Ordering::Relaxed);
        sum_nanos.fetch_add(nanos, Ordering::Relaxed);
        slots.offer(bucket, trace_id, seconds(nanos));
    }

    fn histogram(&self) -> Histogram {
        let Inner { bounds, counts, sum_nanos, .. } = &*self.0;
        let mut counted = 0;
        let buckets = bounds.iter().zip(counts.iter()).map(|(bound, count)| {
            counted += count.load(Ordering::Relaxed);
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(seconds(*bound));
            bucket.set_cumulative_count(counted);
            bucket
        });
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.collect());
        // The one without a bound is left to the writers, of which the text format's would call it `inf`.
        counted += counts.last().map_or(0, |beyond| beyond.load(Ordering::Relaxed));
        // Of the same look as the buckets, so that the last of them is never another number.
        histogram.set_sample_count(counted);
        histogram.set_sample_sum(seconds(sum_nanos.load(Ordering::Relaxed)));
        histogram
    }
}

impl Timings {
    /// Registers a family whose series have the label, if there is one.
    ///
    /// # Errors
    /// The name is registered already.
    pub(super) fn register(
        registry: &Registry,
        exemplars: &Exemplars,
        name: &str,
        help: &str,
        label: Option<&str>,
        bounds: Bounds,
    ) -> Result<Timings> {
        let labels = label.into_iter().map(ToOwned::to_owned).collect();
        let timings = Timings {
            desc: Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new())?,
            bounds,
            exemplars: exemplars.clone(),
            series: Arc::default(),
        };
        registry.register(Box::new(timings.clone()))?;
        Ok(timings)
    }

    /// The series of a value of the label; of any, where there is no label.
    pub(super) fn series(&self, value: &str) -> Timing {
        let Timings { desc, bounds, exemplars, series } = self;
        let labels = if desc.variable_labels.is_empty() { &[][..] } else { &[value] };
        let new = || {
            Timing(Arc::new(Inner {
                bounds,
                counts: std::iter::repeat_with(AtomicU64::default).take(bounds.len() + 1).collect(),
                sum_nanos: AtomicU64::default(),
                slots: exemplars.slots(&desc.fq_name, labels, bounds.len() + 1),
            }))
        };
        let mut series = series.lock().unwrap_or_else(PoisonError::into_inner);
        series.entry(labels.concat()).or_insert_with(new).clone()
    }
}

impl Collector for Timings {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics = series.iter().map(|(value, timing)| {
            let labels = self.desc.variable_labels.iter().map(|name| {
                let mut label = LabelPair::default();
                label.set_name(name.clone());
                label.set_value(value.clone());
                label
            });
            let mut metric = Metric::from_label(labels.collect());
            metric.set_histogram(timing.histogram());
            metric
        });
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(metrics.collect());
        vec![family]
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days, and near enough beyond")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / NANOS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::trace::TraceIds;

    #[test]
    fn a_duration_counts_in_every_bucket_that_is_not_below_it() {
        let (registry, exemplars) = (Registry::new(), Exemplars::new(Clock::new()));
        let register = || {
            let bounds = &[50_000, 1_000_000_000];
            Timings::register(&registry, &exemplars, "wait_seconds", "Wait.", Some("route"), bounds)
        };
        let timings = register().unwrap();
        assert!(register().is_err(), "the same name twice");
        let (timing, trace_id) = (timings.series("a"), TraceIds::new().next());
        for micros in [0, 50, 51, 1_000_000, 1_000_001, u64::MAX] {
            timing.observe(Duration::from_micros(micros), trace_id);
        }

        let families = registry.gather();

        let [metric] = families[0].get_metric() else { panic!("one series") };
        assert_eq!((metric.get_label()[0].name(), metric.get_label()[0].value()), ("route", "a"));
        let histogram = metric.get_histogram();
        let buckets: Vec<_> = histogram
            .get_bucket()
            .iter()
            .map(|bucket| (bucket.upper_bound().to_string(), bucket.cumulative_count()))
            .collect();
        let expected = [("0.00005", 2), ("1", 4)];
        assert_eq!(buckets, expected.map(|(bound, count)| (bound.to_owned(), count)));
        assert_eq!(histogram.get_sample_count(), 6);
        let text = prometheus::TextEncoder::new().encode_to_string(&families).unwrap();
        assert!(text.contains("wait_seconds_bucket{route=\"a\",le=\"+Inf\"} 6\n"), "{text}");
    }
}
