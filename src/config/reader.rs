//! Reads the values of one table, and notes what is wrong with them.
//!
//! A value that cannot be read is noted and `None`, and reading goes on: all mistakes of a
//! configuration are reported at once.

use super::keys::{Absent, Key, Kind, Section, Slot};
use super::mistakes::{Mistakes, Origin};
use super::settings::{Settings, Value};

/// One table: a section, or one upstream or route.
pub(super) struct Reader<'a> {
    pub(super) settings: &'a Settings,
    pub(super) mistakes: &'a mut Mistakes,
    pub(super) section: Section,
    pub(super) index: usize,
}

impl<'a> Reader<'a> {
    /// A reader for a section that is a single table.
    pub(super) fn single(
        section: Section,
        settings: &'a Settings,
        mistakes: &'a mut Mistakes,
    ) -> Reader<'a> {
        Reader { settings, mistakes, section, index: 0 }
    }

    /// Reads the value, or the default if it is not set.
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        if let Some(read) = self.read_if_set(name, &parse) {
            return read;
        }
        let key = self.key(name);
        match key.absent {
            Absent::Default(text) => self.noted(key, &Origin::Default, parse(text)),
            Absent::Means(..) | Absent::Mistake(_) => {
                let (name, example) = (key.name, key.example());
                let message = format!("{key} is missing; add for example {name} = {example}");
                let place = self.table_place();
                self.mistakes.push(&place, message);
                None
            }
        }
    }

    /// Reads the value; `None`: it is not set.
    pub(super) fn read_if_set<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Option<T>> {
        let key = self.key(name);
        let (value, origin) = self.settings.get(self.slot(key))?;
        let read = match value {
            Value::Text(text) => parse(text),
            Value::Integer(number) if takes_integers(key.kind) => parse(&number.to_string()),
            Value::Integer(_) => Err("expected a text in quotes, found an integer".to_owned()),
            Value::List(_) => Err(expected(key, "array")),
            Value::Other(found) => Err(expected(key, found)),
        };
        Some(self.noted(key, origin, read))
    }

    /// Reads what need not be set; `None`: it is set, and could not be read.
    pub(super) fn read_optional<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Option<T>> {
        match self.read_if_set(name, parse) {
            Some(read) => read.map(Some),
            None => Some(None),
        }
    }

    /// Reads a list, element by element; `None`: it is not set.
    pub(super) fn read_list_if_set<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Option<Vec<T>>> {
        let key = self.key(name);
        let (value, origin) = self.settings.get(self.slot(key))?;
        let found = match value {
            Value::List(elements) => {
                let read: Vec<_> = elements
                    .iter()
                    .map(|(text, place)| self.noted(key, place, parse(text)))
                    .collect();
                return Some(read.into_iter().collect());
            }
            Value::Text(_) => "string",
            Value::Integer(_) => "integer",
            Value::Other(found) => found,
        };
        Some(self.noted(key, origin, Err(expected(key, found))))
    }

    /// Whether anybody set the key.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.settings.get(self.slot(self.key(name))).is_some()
    }

    /// Whether both of two keys are set, or none; else it is a mistake.
    pub(super) fn together(&mut self, one: &str, other: &str) -> bool {
        let set = [one, other].map(|name| self.is_set(name));
        let (has, lacks) = match set {
            [true, false] => (one, other),
            [false, true] => (other, one),
            _ => return true,
        };
        let section = self.section.name();
        let why = format!("{section}.{lacks} is missing; give both or neither");
        self.wrong(has, &why);
        false
    }

    /// Notes a mistake about a key that is set.
    pub(super) fn wrong(&mut self, name: &str, why: &str) {
        let place = self.place(name);
        let message = format!("{}: {why}", self.key(name));
        self.mistakes.push(&place, message);
    }

    /// Where the key was set, or where its table is.
    pub(super) fn place(&self, name: &str) -> Origin {
        let slot = self.slot(self.key(name));
        self.settings.get(slot).map_or_else(|| self.table_place(), |(_, origin)| origin.clone())
    }

    fn table_place(&self) -> Origin {
        let place = self.settings.tables(self.section).find(|(index, _)| *index == self.index);
        place.map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    fn key(&self, name: &str) -> &'static Key {
        Key::find(self.section, name).expect("every key that is read is in the table of keys")
    }

    fn slot(&self, key: &Key) -> Slot {
        Slot { section: self.section, index: self.index, name: key.name }
    }

    fn noted<T>(&mut self, key: &Key, place: &Origin, read: Result<T, String>) -> Option<T> {
        read.map_err(|why| {
            let example = key.example();
            self.mistakes.push(place, format!("{key}: {why}; for example {example}"));
        })
        .ok()
    }
}

/// Whether an integer of the file can stand for the value: a duration gets its own message about
/// the missing unit.
const fn takes_integers(kind: Kind) -> bool {
    matches!(kind, Kind::Number | Kind::Size | Kind::Duration)
}

fn expected(key: &Key, found: &str) -> String {
    let article = match key.kind {
        Kind::Address => "an ",
        Kind::Choice(_) => "",
        _ => "a ",
    };
    format!("expected {article}{}, found {found}", key.kind.label())
}
