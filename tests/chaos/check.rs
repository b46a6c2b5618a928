//! The promise, checked from what the API recorded and what the workers were told. The gateways' state
//! and logs are not believed.
//!
//! The API keeps the settle time that the gateways are told of: it drops a request whose connection is gone
//! before it takes effect, and one that has waited for too long. So a write that was in doubt is over in
//! the record, too, before a newer one may begin, and no tolerance is needed.

mod doctored;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::notes::{Notes, Told, write_of};
use super::record::{Record, Request};

/// A way in which the promise was broken, with the lines that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A write began after one of a higher token had.
    WentBack { newer: String, older: String },
    /// A write began before one of a smaller token was over.
    Overlap { older: String, newer: String },
    /// Its worker was told that it happened, and it did not.
    Lost { write: String },
    /// It happened more than once.
    Repeated { write: String },
    /// Its worker was told that nothing of it was sent, and it reached the API.
    DeniedYetSent { attempt: String, told: String },
    /// What reached the API is nothing that a worker sent to this resource under this token.
    Foreign { line: String },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::WentBack { newer, older } => {
                write!(f, "a token went back:\n  {newer}\n  {older}")
            }
            Violation::Overlap { older, newer } => write!(f, "an overlap:\n  {older}\n  {newer}"),
            Violation::Lost { write } => write!(f, "acknowledged, but without effect: {write}"),
            Violation::Repeated { write } => write!(f, "took effect twice: {write}"),
            Violation::DeniedYetSent { attempt, told } => {
                write!(f, "not forwarded ({told}), but at the API: {attempt}")
            }
            Violation::Foreign { line } => write!(f, "sent by nobody: {line}"),
        }
    }
}

/// All violations of the promise; empty if it was kept.
pub fn violations(record: &Record, notes: &Notes) -> Vec<Violation> {
    let mut found = disorder(record);
    found.extend(foreign(record, notes));
    found.extend(miscounted(record, notes));
    found
}

/// Tokens that went back, and writes of different tokens that overlap. What had no effect counts as well:
/// it was forwarded. Also right while the API still records.
pub fn disorder(record: &Record) -> Vec<Violation> {
    let mut resources: BTreeMap<&str, Vec<&Request>> = BTreeMap::new();
    for request in &record.requests {
        resources.entry(&request.resource).or_default().push(request);
    }
    let mut found = Vec::new();
    for requests in resources.values() {
        let mut newest: Option<&Request> = None;
        let mut under_way: Vec<&Request> = Vec::new();
        for request in requests {
            match newest {
                Some(newest) if request.token < newest.token => found.push(Violation::WentBack {
                    newer: record.tell(newest),
                    older: record.tell(request),
                }),
                _ => newest = Some(request),
            }
            under_way.retain(|older| older.ended > request.began);
            let older = under_way.iter().filter(|older| older.token < request.token);
            found.extend(older.map(|older| Violation::Overlap {
                older: record.tell(older),
                newer: record.tell(request),
            }));
            under_way.push(request);
        }
    }
    found
}

fn foreign(record: &Record, notes: &Notes) -> Vec<Violation> {
    let is_ours = |request: &&Request| {
        notes.get(&request.name).is_some_and(|note| {
            note.resource == request.resource && Some(note.token) == request.token
        })
    };
    let foreign = record.requests.iter().filter(|request| !is_ours(request));
    foreign.map(|request| Violation::Foreign { line: record.tell(request) }).collect()
}

/// Whether each write happened as often as its worker was told.
fn miscounted(record: &Record, notes: &Notes) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut effects: HashMap<&str, usize> = HashMap::new();
    let mut sent: HashMap<&str, &Request> = HashMap::new();
    for request in &record.requests {
        sent.insert(&request.name, request);
        if request.effect.is_some() {
            *effects.entry(&request.name).or_default() += 1;
        }
    }
    let mut by_write: BTreeMap<&str, usize> = BTreeMap::new();
    for (attempt, times) in &effects {
        *by_write.entry(write_of(attempt)).or_default() += times;
    }
    for (write, times) in by_write {
        if times > 1 {
            found.push(Violation::Repeated { write: write.to_owned() });
        }
    }
    for (attempt, note) in notes {
        match (&note.told, sent.get(attempt.as_str())) {
            (Told::Done, _) if !effects.contains_key(attempt.as_str()) => {
                found.push(Violation::Lost { write: attempt.clone() });
            }
            (Told::NotForwarded(told), Some(request)) => found.push(Violation::DeniedYetSent {
                attempt: record.tell(request),
                told: told.clone(),
            }),
            _ => {}
        }
    }
    found
}
