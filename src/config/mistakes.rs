//! Where a value came from, and the list of all that is wrong.

use std::fmt;
use std::sync::Arc;

/// Where a value came from. Ordered as mistakes are listed: the file by line, then the
/// environment, then flags.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A line of the file, from 1; `None`: the file as a whole.
    File { file: Arc<str>, line: Option<usize> },
    /// An environment variable, by its name.
    Environment(String),
    /// A flag, with its dashes.
    Flag(&'static str),
    /// Nobody set it.
    Default,
}

impl Origin {
    /// A later layer wins over an earlier one.
    pub(super) const fn layer(&self) -> u8 {
        match self {
            Origin::Default => 0,
            Origin::File { .. } => 1,
            Origin::Environment(_) => 2,
            Origin::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { file, line: Some(line) } => write!(f, "{file}:{line}"),
            Origin::File { file, line: None } => f.write_str(file),
            Origin::Environment(name) => f.write_str(name),
            Origin::Flag(name) => f.write_str(name),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// All that is wrong with a configuration, sorted by place. Displayed one a line as
/// `place: message`; no message shows the secret part of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Mistakes(Vec<(Origin, String)>);

impl Mistakes {
    pub(super) fn push(&mut self, place: &Origin, message: impl Into<String>) {
        self.0.push((place.clone(), message.into()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sorts by place; mistakes of one place keep the order in which they were found.
    pub(super) fn sorted(mut self) -> Mistakes {
        self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
        self
    }
}

fn lines(mistakes: &[(Origin, String)]) -> String {
    let lines: Vec<_> =
        mistakes.iter().map(|(place, message)| format!("{place}: {message}")).collect();
    lines.join("\n")
}

/// A value as a message may show it: quoted, short, without user info, query or control characters.
pub(super) fn shown(value: &str) -> String {
    // The last `@`, since a password may hold one itself; it may hold `/` and `?` as well.
    let (before, rest) = match value.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), value),
    };
    let public = match rest.rsplit_once('@') {
        Some((_, host)) => format!("{before}***@{host}"),
        None => format!("{before}{rest}"),
    };
    let public = match public.split_once('?') {
        Some((path, _)) if !before.is_empty() => format!("{path}?***"),
        _ => public,
    };
    const LONGEST: usize = 80;
    if public.chars().count() > LONGEST {
        format!("{:?}", public.chars().take(LONGEST).chain(['…']).collect::<String>())
    } else {
        format!("{public:?}")
    }
}

/// The candidate nearest to `name`, if one is near enough to be meant.
pub(super) fn nearest<S: AsRef<str>>(
    name: &str,
    candidates: impl IntoIterator<Item = S>,
) -> Option<S> {
    let farthest = (name.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate.as_ref()), candidate))
        .filter(|(distance, _)| *distance <= farthest)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
