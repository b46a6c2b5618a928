//! Medians of paired slices.

/// A figure with the quartiles of the slices that it is the median of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Median and quartiles; all zero of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Spread {
            low: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            high: quantile(&sorted, 0.75),
        }
    }

    /// Of the ratios of slices that were taken one after the other: what slows the machine for
    /// a while slows both of a pair.
    pub(crate) fn of_ratios<T>(ours: &[T], theirs: &[T], figure: impl Fn(&T) -> f64) -> Spread {
        Spread::of(ours.iter().zip(theirs).map(|(our, their)| figure(our) / figure(their)))
    }
}

fn quantile(sorted: &[f64], at: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = at * last as f64;
    let (below, above) = (place.floor(), place.ceil());
    let value = |place: f64| sorted[place as usize];
    value(below) + (value(above) - value(below)) * (place - below)
}
