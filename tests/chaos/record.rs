//! The API's record: a line per event, in the order in which the events happened.
//!
//! `SECONDS REQUEST begin RESOURCE TOKEN NAME`, then `SECONDS REQUEST effect` if it takes effect, then
//! `SECONDS REQUEST end HOW`. The API takes one lock for the clock and the line, so the order of the
//! lines is the order of events, to no tolerance.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A line of the record, counted from 1.
pub type Line = usize;

/// Later than every line.
const NEVER: Line = usize::MAX;

/// A request that reached the API as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub resource: String,
    /// `None`: it came without one.
    pub token: Option<u64>,
    /// What its sender calls it.
    pub name: String,
    pub began: Line,
    pub effect: Option<Line>,
    /// From here on the API does nothing for it any more.
    pub ended: Line,
}

/// All requests, in the order in which they began.
#[derive(Clone, Debug, Default)]
pub struct Record {
    lines: Vec<String>,
    pub requests: Vec<Request>,
}

/// What an API that records writes down of one request.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    Begin { resource: &'a str, token: &'a str, name: &'a str },
    Effect,
    End(&'a str),
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Begin { resource, token, name } => write!(f, "begin {resource} {token} {name}"),
            Event::Effect => write!(f, "effect"),
            Event::End(how) => write!(f, "end {how}"),
        }
    }
}

impl Record {
    /// Begins an empty one in this directory.
    pub fn create(dir: &Path) {
        File::create(file(dir)).expect("a writable directory");
    }

    /// For the one who records.
    pub fn append(dir: &Path) -> File {
        File::options().append(true).open(file(dir)).expect("made before the API started")
    }

    /// What was recorded so far.
    pub fn read(dir: &Path) -> Record {
        Record::parse(&fs::read_to_string(file(dir)).expect("made before the API started"))
    }

    /// Reads a record; a last line may be half written.
    pub fn parse(text: &str) -> Record {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut record = Record::default();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (at, line) in whole.lines().enumerate() {
            record.lines.push(line.to_owned());
            let line_number = at + 1;
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                [_, number, "begin", resource, token, name] => {
                    places.insert(number, record.requests.len());
                    record.requests.push(Request {
                        resource: resource.to_owned(),
                        token: token.parse().ok(),
                        name: name.to_owned(),
                        began: line_number,
                        effect: None,
                        ended: NEVER,
                    });
                }
                [_, number, "effect"] => {
                    record.requests[places[number]].effect = Some(line_number);
                }
                [_, number, "end", _] => record.requests[places[number]].ended = line_number,
                _ => panic!("line {line_number} of the record is not one: {line}"),
            }
        }
        record
    }

    /// The lines that tell of a request, for people.
    pub fn tell(&self, request: &Request) -> String {
        let lines = [Some(request.began), request.effect, Some(request.ended)];
        let lines = lines.into_iter().flatten().filter_map(|line| {
            let text = self.lines.get(line.checked_sub(1)?)?;
            Some(format!("{line}: {text}"))
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    /// How many times a resource passed to a higher token.
    pub fn handovers(&self) -> usize {
        let mut highest: HashMap<&str, Option<u64>> = HashMap::new();
        let effective = self.requests.iter().filter(|request| request.effect.is_some());
        let rose = effective.filter(|request| {
            let before = highest.insert(&request.resource, request.token);
            before.is_some_and(|before| before < request.token)
        });
        rose.count()
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("record")
}
