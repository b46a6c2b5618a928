//! The promise, checked from what nobody here wrote: nginx's log, the files that it stored, and what
//! curl told the workers. Neither the gateway's answers nor its state are believed.
//!
//! nginx writes a line when a request is over, with its length. All times are from nginx's one clock,
//! which is read once per round of its event loop and has a resolution of 1 ms.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use super::write::WriteName;
use crate::support::nginx::Timed;

const RESOLUTION_MS: u64 = 1;

/// What a worker noted of one write: before curl was started, and what curl said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// `None`: the worker was killed before curl ended. 0: curl got no answer.
    pub status: Option<u16>,
}

/// Everything that a fight leaves behind.
#[derive(Clone, Debug, Default)]
pub(super) struct Traces {
    pub log: Vec<Timed>,
    pub files: BTreeMap<String, Vec<u8>>,
    /// By the write's name.
    pub notes: HashMap<String, Note>,
}

/// A way in which the promise was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// A write was over after one of a higher token.
    WentBack { file: String, older: String, newer: String },
    /// A write began before one of a smaller token was over.
    Overlap { file: String, older: String, newer: String },
    /// A worker was told that it happened, and it did not.
    Lost { name: String },
    /// It happened more than once.
    Repeated { name: String },
    /// A worker was told that it was refused, and it reached the API.
    RefusedYetSent { name: String, status: u16 },
    /// What reached the API is nothing that a worker sent, or has not the token it was sent under.
    Foreign { line: String },
    /// The file is not its last write, byte for byte.
    FileIsNotLastWrite { file: String, last: String },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Traces {
    /// Writes that took effect, in the order in which they were over.
    pub(super) fn effects(&self) -> impl Iterator<Item = &Timed> {
        self.log.iter().filter(|line| line.method == "PUT" && (200..300).contains(&line.status))
    }

    /// How many times a file passed to a higher token.
    pub(super) fn handovers(&self) -> usize {
        let mut highest: HashMap<&str, u64> = HashMap::new();
        let rose = self.effects().filter(|write| {
            let token = write.token.unwrap_or_default();
            let before = highest.insert(&write.target, token);
            before.is_some_and(|before| before < token)
        });
        rose.count()
    }

    /// What curl said, and how often so; `None` where its worker was killed before it said anything.
    pub(super) fn answers(&self) -> BTreeMap<Option<u16>, usize> {
        let mut answers = BTreeMap::new();
        self.notes.values().for_each(|note| *answers.entry(note.status).or_default() += 1);
        answers
    }

    /// All violations of the promise; empty if it was kept.
    pub(super) fn violations(&self) -> Vec<Violation> {
        let mut found = self.disorder();
        found.extend(self.foreign());
        found.extend(self.miscounted());
        found.extend(self.wrong_files());
        found
    }

    /// Tokens that went back, and writes of different tokens that overlap.
    fn disorder(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (file, writes) in self.by_file() {
            // Of the writes that are over so far, in the order of the log.
            for (at, later) in writes.iter().enumerate() {
                for earlier in &writes[..at] {
                    let names = |older: &Timed, newer: &Timed| {
                        (file.to_owned(), older.name.clone(), newer.name.clone())
                    };
                    if later.token < earlier.token {
                        let (file, older, newer) = names(later, earlier);
                        found.push(Violation::WentBack { file, older, newer });
                    } else if earlier.token < later.token
                        && later.began_ms + RESOLUTION_MS < earlier.ended_ms
                    {
                        let (file, older, newer) = names(earlier, later);
                        found.push(Violation::Overlap { file, older, newer });
                    }
                }
            }
        }
        found
    }

    fn foreign(&self) -> Vec<Violation> {
        let is_ours = |line: &Timed| {
            let name = WriteName::parse(&line.name);
            name.is_some_and(|name| line.token == Some(name.token))
                && self.notes.contains_key(&line.name)
        };
        let foreign = self.effects().filter(|line| !is_ours(line));
        foreign.map(|line| Violation::Foreign { line: format!("{line:?}") }).collect()
    }

    /// Whether each write happened as often as its worker was told.
    fn miscounted(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut effects = HashSet::new();
        for write in self.effects() {
            if !effects.insert(write.name.as_str()) {
                found.push(Violation::Repeated { name: write.name.clone() });
            }
        }
        let sent: HashSet<_> = self.log.iter().map(|line| line.name.as_str()).collect();
        for (name, note) in &self.notes {
            match note.status {
                Some(200..300) if !effects.contains(name.as_str()) => {
                    found.push(Violation::Lost { name: name.clone() });
                }
                Some(status @ (403 | 412 | 428)) if sent.contains(name.as_str()) => {
                    found.push(Violation::RefusedYetSent { name: name.clone(), status });
                }
                _ => {}
            }
        }
        found
    }

    fn wrong_files(&self) -> Vec<Violation> {
        let is_right = |file: &str, last: &Timed| {
            let content = WriteName::parse(&last.name).map(|name| name.content());
            content.as_ref() == self.files.get(file)
        };
        let lasts = self.by_file().into_iter().filter_map(|(file, writes)| {
            let last = writes.last()?;
            (!is_right(file, last)).then(|| Violation::FileIsNotLastWrite {
                file: file.to_owned(),
                last: last.name.clone(),
            })
        });
        lasts.collect()
    }

    fn by_file(&self) -> BTreeMap<&str, Vec<&Timed>> {
        let mut files: BTreeMap<&str, Vec<&Timed>> = BTreeMap::new();
        for write in self.effects() {
            files.entry(&write.target).or_default().push(write);
        }
        files
    }
}
