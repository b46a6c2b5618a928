//! Tests of the loader, all through [`load`].

mod access;
mod changes;
mod coordinator;
mod documentation;
mod environment;
mod flags;
mod tls;
mod together;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::load::{Loaded, Override, Sources, load};

/// A file that holds, without what has a default.
const SMALL: &str = "[[upstream]]\nurl = \"http://127.0.0.1:9000\"\n\n\
                     [[route]]\npath = \"/{*rest}\"\n";

/// Sources of a test: a file in a directory of its own, variables, flags.
#[derive(Default)]
struct Given {
    directory: Option<tempfile::TempDir>,
    sources: Sources,
}

impl Given {
    fn file(text: &str) -> Given {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fencegate.toml");
        std::fs::write(&path, text).unwrap();
        let sources = Sources { file: Some(path), ..Sources::default() };
        Given { directory: Some(directory), sources }
    }

    fn nothing() -> Given {
        Given::default()
    }

    fn variable(mut self, name: &str, value: &str) -> Given {
        self.sources.environment.insert(name.into(), value.into());
        self
    }

    fn environment(mut self, environment: BTreeMap<OsString, OsString>) -> Given {
        self.sources.environment = environment;
        self
    }

    fn flag(mut self, flag: &'static str, path: &str, value: &str) -> Given {
        let (path, value) = (path.to_owned(), value.to_owned());
        self.sources.overrides.push(Override { path, value, flag });
        self
    }

    fn loaded(&self) -> Loaded {
        load(&self.sources).unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    /// The mistakes, one a line, with the bare name of the file.
    fn mistakes(&self) -> Vec<String> {
        let mistakes = load(&self.sources).expect_err("the configuration is wrong").to_string();
        let directory = self
            .directory
            .as_ref()
            .map_or_else(String::new, |directory| format!("{}/", directory.path().display()));
        let bare = |line: &str| match directory.as_str() {
            "" => line.to_owned(),
            directory => line.replace(directory, ""),
        };
        mistakes.lines().map(bare).collect()
    }
}

/// Asserts that each line begins with the place and holds the words.
#[track_caller]
fn assert_lines(lines: &[String], expected: &[(&str, &str)]) {
    let fits = |(line, (place, words)): (&String, &(&str, &str))| {
        line.strip_prefix(place).is_some_and(|rest| rest.starts_with(": ") && rest.contains(words))
    };
    assert!(
        lines.len() == expected.len() && lines.iter().zip(expected).all(fits),
        "expected {expected:#?}, found {lines:#?}"
    );
}
