//! What a scrape tells: by the rules of those who read it, within bounds, and truly.

mod bounds;
mod formats;
mod page;
mod truth;

use std::collections::{BTreeMap, BTreeSet};

use crate::support::gateway::Gateway;
use crate::support::http::send;

/// The trace that tests send.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A scrape: types by name, and values by series.
pub struct Scrape {
    pub text: String,
    pub types: BTreeMap<String, String>,
    pub series: BTreeMap<String, f64>,
}

/// A scrape as curl makes it.
pub fn scrape(gateway: &Gateway) -> Scrape {
    let answer = gateway.admin("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
    let text = String::from_utf8(answer.body).expect("text");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let series = series.map(|line| line.rsplit_once(' ').expect("a series and its value"));
    Scrape {
        types: types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect(),
        series: series
            .map(|(series, value)| (series.to_owned(), value.parse().expect("a number")))
            .collect(),
        text: text.clone(),
    }
}

impl Scrape {
    /// Label names of a metric, those of histograms' buckets left out.
    fn labels(&self, metric: &str) -> BTreeSet<String> {
        let of_metric = |series: &&String| {
            let name = series.split('{').next().unwrap_or_default();
            let name = name.strip_prefix(metric);
            name.is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
        };
        let labels =
            self.series.keys().filter(of_metric).filter_map(|series| {
                Some(series.split_once('{')?.1.trim_end_matches('}').to_owned())
            });
        let names: BTreeSet<String> = labels
            .flat_map(|labels| {
                let names = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0));
                names.map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        names.into_iter().filter(|name| name != "le").collect()
    }

    #[track_caller]
    pub fn value(&self, series: &str) -> f64 {
        *self.series.get(series).unwrap_or_else(|| panic!("there is no {series}"))
    }
}

/// A write with a token of the trace.
fn traced(gateway: &Gateway, path: &str, token: u64) -> u16 {
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let token = token.to_string();
    let fields = [("Fencing-Token", token.as_str()), ("traceparent", &traceparent)];
    send(gateway.proxy, "PUT", path, &fields, b"x").status
}
