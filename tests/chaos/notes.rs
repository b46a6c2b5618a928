//! What writers note of their writes, in one file: a line before each attempt is sent and one after it was
//! answered. A write is tried again, under the same name and the next number, only when the gateway said
//! that it was not forwarded; so the notes hold that word against the API's record.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

const FILE: &str = "notes";

/// One sending of a write: `WRITE.NUMBER`.
pub type Attempt = String;

/// What a writer was told of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// Nothing: it was killed, went away, or its connection broke.
    Nothing,
    /// It happened.
    Done,
    /// It may have happened; with the status and code.
    Unknown(String),
    /// Nothing of it was sent; with the status and code.
    NotForwarded(String),
}

/// What is known of an attempt from its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub resource: String,
    pub token: u64,
    pub told: Told,
    /// Its last line, counted from 1.
    pub line: usize,
}

/// All attempts by name.
pub type Notes = BTreeMap<Attempt, Note>;

/// Where a writer notes.
pub struct Notebook(File);

impl Notebook {
    /// Begins an empty one in this directory.
    pub fn create(dir: &Path) {
        File::create(dir.join(FILE)).expect("a writable directory");
    }

    pub fn open(dir: &Path) -> Notebook {
        let file = File::options().append(true).open(dir.join(FILE));
        Notebook(file.expect("made before the first writer"))
    }

    /// Written at once, so that lines of several writers do not mix.
    pub fn note(&mut self, attempt: &str, resource: &str, token: &str, told: &Told) {
        let told = match told {
            Told::Nothing => "sent".to_owned(),
            Told::Done => "done".to_owned(),
            Told::Unknown(code) => format!("unknown {code}"),
            Told::NotForwarded(code) => format!("not_forwarded {code}"),
        };
        let line = format!("{attempt} {resource} {token} {told}\n");
        self.0.write_all(line.as_bytes()).expect("room on the disk");
    }
}

/// What was noted so far.
pub fn read(dir: &Path) -> Notes {
    parse(&fs::read_to_string(dir.join(FILE)).expect("made before the first writer"))
}

/// Reads notes; a last line may be half written.
pub fn parse(text: &str) -> Notes {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut notes = Notes::new();
    for (at, line) in whole.lines().enumerate() {
        let words: Vec<_> = line.split(' ').collect();
        let (attempt, resource, token, told) = match words[..] {
            [attempt, resource, token, "sent"] => (attempt, resource, token, Told::Nothing),
            [attempt, resource, token, "done"] => (attempt, resource, token, Told::Done),
            [attempt, resource, token, "unknown", code] => {
                (attempt, resource, token, Told::Unknown(code.to_owned()))
            }
            [attempt, resource, token, "not_forwarded", code] => {
                (attempt, resource, token, Told::NotForwarded(code.to_owned()))
            }
            _ => panic!("half a note: {line}"),
        };
        let token = token.parse().expect("a worker has a token");
        let note = Note { resource: resource.to_owned(), token, told, line: at + 1 };
        notes.insert(attempt.to_owned(), note);
    }
    notes
}

/// The write that an attempt is one of.
pub fn write_of(attempt: &str) -> &str {
    attempt.rsplit_once('.').map_or(attempt, |(write, _)| write)
}
