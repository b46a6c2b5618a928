//! The one table that is printed at the end: first the figures that have a goal, then what is
//! behind them.

use std::fmt;

use crate::rows::{Goal, Limit, Row};
use crate::stats::Spread;

/// The figures in the order in which they were measured.
#[derive(Debug, Default)]
pub(crate) struct Table {
    judged: Vec<(Row, String, Spread)>,
    behind: Vec<(String, Spread)>,
}

impl Table {
    /// Adds a figure that the row's goal applies to.
    pub(crate) fn judge(&mut self, row: Row, what: impl Into<String>, value: Spread) {
        self.judged.push((row, what.into(), value));
    }

    /// Adds a figure that explains others.
    pub(crate) fn explain(&mut self, what: impl Into<String>, value: Spread) {
        self.behind.push((what.into(), value));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut judged: Vec<_> = self.judged.iter().collect();
        // Rows were measured level by level; a reader looks for one row's levels together.
        judged.sort_by_key(|(row, ..)| *row);
        line(f, ["row", "figure", "median", "quartiles", "must", "aim", "verdict"])?;
        for (row, what, value) in judged {
            let Goal { must, aim } = row.goal();
            let [must, aim] = [must, aim].map(|limit| limit.as_ref().map(Limit::to_string));
            let (must, aim) = (must.unwrap_or_default(), aim.unwrap_or_default());
            let verdict = row.goal().verdict(value.median);
            let (median, quartiles) = numbers(*value);
            line(f, [row.name(), what, &median, &quartiles, &must, &aim, verdict])?;
        }
        writeln!(f)?;
        for (what, value) in &self.behind {
            let (median, quartiles) = numbers(*value);
            line(f, ["", what, &median, &quartiles, "", "", ""])?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, cells: [&str; 7]) -> fmt::Result {
    let [row, what, median, quartiles, must, aim, verdict] = cells;
    let line = format!("{row:<11}{what:<45}{median:>9}  {quartiles:<17}{must:<8}{aim:<8}{verdict}");
    writeln!(f, "{}", line.trim_end())
}

fn numbers(Spread { low, median, high }: Spread) -> (String, String) {
    let digits = if median.abs() >= 100.0 { 0 } else { 2 };
    (format!("{median:.digits$}"), format!("{low:.digits$}..{high:.digits$}"))
}
