//! Every key there is: its section, its kind and its default.
//!
//! The table in `table` is the only list of keys. The file and environment readers accept what is in it and
//! nothing else, defaults are read from it by the same parsers as values, and a test holds
//! `docs/configuration.md` against it.

mod table;

use std::fmt;

pub(super) use table::KEYS;

/// A table of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Listen,
    Access,
    Store,
    Coordinator,
    Upstream,
    Route,
    Limits,
    Shutdown,
    Metrics,
    Telemetry,
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Address,
    Url,
    File,
    Name,
    Pattern,
    Template,
    Text,
    Duration,
    Size,
    Number,
    Rate,
    Methods,
    Resources,
    Networks,
    Choice(&'static [&'static str]),
}

/// What holds where a key is not set.
#[derive(Clone, Copy, Debug)]
pub(super) enum Absent {
    /// This value.
    Default(&'static str),
    /// What the text says; the second text is an example of a value.
    Means(&'static str, &'static str),
    /// The key has to be set; the text is an example.
    Mistake(&'static str),
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) section: Section,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) absent: Absent,
}

/// A place for one value: a key and, in `[[upstream]]` and `[[route]]`, whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) section: Section,
    pub(super) index: usize,
    pub(super) name: &'static str,
}

impl Section {
    /// Every section, in the order in which they are printed.
    pub(super) const ALL: [Section; 10] = [
        Section::Listen,
        Section::Access,
        Section::Store,
        Section::Coordinator,
        Section::Upstream,
        Section::Route,
        Section::Limits,
        Section::Shutdown,
        Section::Metrics,
        Section::Telemetry,
    ];

    pub(super) fn named(name: &str) -> Option<Section> {
        Section::ALL.into_iter().find(|section| section.name() == name)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Section::Listen => "listen",
            Section::Access => "access",
            Section::Store => "store",
            Section::Coordinator => "coordinator",
            Section::Upstream => "upstream",
            Section::Route => "route",
            Section::Limits => "limits",
            Section::Shutdown => "shutdown",
            Section::Metrics => "metrics",
            Section::Telemetry => "telemetry",
        }
    }

    /// Whether the section is an array of tables.
    pub(super) const fn is_array(self) -> bool {
        matches!(self, Section::Upstream | Section::Route)
    }

    pub(super) fn keys(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(move |key| key.section == self)
    }
}

/// As its header stands in the file: `[listen]`, `[[route]]`.
impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_array() {
            write!(f, "[[{}]]", self.name())
        } else {
            write!(f, "[{}]", self.name())
        }
    }
}

impl Kind {
    /// What the documentation and mistakes call it.
    pub(super) fn label(self) -> String {
        match self {
            Kind::Address => "address".into(),
            Kind::Url => "URL".into(),
            Kind::File => "file name".into(),
            Kind::Name => "name".into(),
            Kind::Pattern => "path pattern".into(),
            Kind::Template => "template".into(),
            Kind::Text => "text".into(),
            Kind::Duration => "duration".into(),
            Kind::Size => "size".into(),
            Kind::Number => "number".into(),
            Kind::Rate => "rate".into(),
            Kind::Methods => "list of methods".into(),
            Kind::Resources => "list of resources".into(),
            Kind::Networks => "list of networks".into(),
            Kind::Choice(choices) => {
                choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(" or ")
            }
        }
    }
}

impl Key {
    /// The key of this name in `section`.
    pub(super) fn find(section: Section, name: &str) -> Option<&'static Key> {
        section.keys().find(|key| key.name == name)
    }

    /// A value that would do, as it is typed into the file.
    pub(super) fn example(&self) -> String {
        let (Absent::Default(text) | Absent::Means(_, text) | Absent::Mistake(text)) = self.absent;
        match self.kind {
            Kind::Number => text.to_owned(),
            Kind::Methods | Kind::Resources | Kind::Networks => {
                format!("{:?}", text.split(", ").collect::<Vec<_>>())
            }
            _ => format!("{text:?}"),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.section.name(), self.name)
    }
}

/// More upstreams or routes than anybody has; an index is typed by hand.
const HIGHEST_INDEX: usize = 9_999;

impl Slot {
    /// Reads `["listen", "proxy"]` or `["route", "0", "path"]`.
    pub(super) fn parse(parts: &[&str]) -> Option<Slot> {
        let (section, index, name) = match *parts {
            [section, name] => (Section::named(section).filter(|s| !s.is_array())?, 0, name),
            [section, index, name] => {
                let section = Section::named(section).filter(|s| s.is_array())?;
                let number: usize = index.parse().ok().filter(|n| *n <= HIGHEST_INDEX)?;
                // "00" and "+1" would be second names of one place.
                (number.to_string() == index).then_some((section, number, name))?
            }
            _ => return None,
        };
        Key::find(section, name).map(|key| Slot { section, index, name: key.name })
    }

    /// The environment variable that sets it.
    pub(super) fn variable(self) -> String {
        let Slot { section, index, name } = self;
        let section = section.name();
        let path = if self.section.is_array() {
            format!("{section}__{index}__{name}")
        } else {
            format!("{section}__{name}")
        };
        format!("{PREFIX}{}", path.to_ascii_uppercase())
    }
}

/// What the names of all our environment variables begin with.
pub(super) const PREFIX: &str = "FENCEGATE_";
