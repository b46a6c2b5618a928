//! OpenMetrics 1.0 text, which the `prometheus` crate does not write.
//!
//! Deliberately absent: `_created` samples, which are optional, and which Prometheus would keep as series of
//! their own, half as many again.

use std::fmt::Write;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use super::exemplar::{Exemplar, Exemplars};

/// Of the text that [`encode`] makes.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Units of which a name can tell, as its last word.
const UNITS: [&str; 2] = ["seconds", "bytes"];

/// The families with the exemplars that were kept since the last call.
pub(crate) fn encode(families: &[MetricFamily], exemplars: &Exemplars) -> String {
    let mut text = Text(String::with_capacity(64 * 1024));
    for family in families {
        text.family(family, exemplars);
    }
    text.0.push_str("# EOF\n");
    text.0
}

/// Writing to a `String` does not fail: results of that are let go.
struct Text(String);

impl Text {
    fn family(&mut self, family: &MetricFamily, exemplars: &Exemplars) {
        let (kind, name) = match family.get_field_type() {
            // The family of a counter is named without what its sample ends with.
            MetricType::COUNTER => {
                ("counter", family.name().strip_suffix("_total").unwrap_or(family.name()))
            }
            MetricType::HISTOGRAM => ("histogram", family.name()),
            MetricType::GAUGE => ("gauge", family.name()),
            // There are none.
            MetricType::SUMMARY | MetricType::UNTYPED => return,
        };
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if let Some((_, unit)) = name.rsplit_once('_').filter(|(_, last)| UNITS.contains(last)) {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = write!(self.0, "# HELP {name} ");
        self.escaped(family.help());
        self.0.push('\n');
        for metric in family.get_metric() {
            let labels = metric.get_label();
            match family.get_field_type() {
                MetricType::COUNTER => {
                    let kept = exemplars.of(family.name(), labels);
                    let value = metric.get_counter().get_value();
                    self.sample(name, "_total", labels, None, value);
                    self.exemplar(kept.first().copied().flatten());
                }
                MetricType::HISTOGRAM => {
                    self.histogram(name, metric, &exemplars.of(name, labels));
                }
                _ => {
                    self.sample(name, "", labels, None, metric.get_gauge().get_value());
                    self.0.push('\n');
                }
            }
        }
    }

    fn histogram(&mut self, name: &str, metric: &Metric, exemplars: &[Option<Exemplar>]) {
        let (labels, histogram) = (metric.get_label(), metric.get_histogram());
        let count = as_f64(histogram.get_sample_count());
        for (nth, bucket) in histogram.get_bucket().iter().enumerate() {
            let bound = bucket.upper_bound();
            let counted = as_f64(bucket.cumulative_count());
            self.sample(name, "_bucket", labels, Some(bound), counted);
            self.exemplar(exemplars.get(nth).copied().flatten());
        }
        self.sample(name, "_bucket", labels, Some(f64::INFINITY), count);
        self.exemplar(exemplars.get(histogram.get_bucket().len()).copied().flatten());
        self.sample(name, "_sum", labels, None, histogram.get_sample_sum());
        self.0.push('\n');
        self.sample(name, "_count", labels, None, count);
        self.0.push('\n');
    }

    /// Without the end of its line.
    fn sample(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &[LabelPair],
        bound: Option<f64>,
        value: f64,
    ) {
        self.0.push_str(name);
        self.0.push_str(suffix);
        let mut separator = '{';
        for label in labels {
            let _ = write!(self.0, "{separator}{}=\"", label.name());
            self.escaped(label.value());
            self.0.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(self.0, "{separator}le=\"{}\"", canonical(bound));
            separator = ',';
        }
        if separator == ',' {
            self.0.push('}');
        }
        let _ = write!(self.0, " {}", number(value));
    }

    /// Ends the line of a sample.
    fn exemplar(&mut self, exemplar: Option<Exemplar>) {
        if let Some(Exemplar { trace_id, value, at }) = exemplar {
            let millis = at.as_millis();
            let (seconds, rest) = (millis.div_euclid(1000), millis.rem_euclid(1000));
            let value = number(value);
            let _ = write!(self.0, " # {{trace_id=\"{trace_id}\"}} {value} {seconds}.{rest:03}");
        }
        self.0.push('\n');
    }

    fn escaped(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
    }
}

fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() }
}

/// A bound as the specification wants it: like Go's `%g`, and with a point or an exponent.
fn canonical(bound: f64) -> String {
    if bound == f64::INFINITY {
        return "+Inf".to_owned();
    }
    if bound != 0.0 && !(1e-4..1e21).contains(&bound.abs()) {
        let text = format!("{bound:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        return format!("{digits}e{exponent:+03}");
    }
    format!("{bound:?}")
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus counts in these numbers as well")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_written_as_the_specification_wants_them() {
        let written = [0.000_05, 0.000_1, 0.002_5, 0.5, 1.0, 60.0, 86_400.0, 1e21, f64::INFINITY];
        let expected =
            ["5e-05", "0.0001", "0.0025", "0.5", "1.0", "60.0", "86400.0", "1e+21", "+Inf"];
        assert_eq!(written.map(canonical), expected);
    }
}
