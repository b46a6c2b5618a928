//! Reads the TOML file into settings.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml_edit::{Document, Item, TableLike, Value as Toml};

use super::keys::{Key, Section, Slot};
use super::mistakes::{Mistakes, Origin, nearest};
use super::settings::{Settings, Value};
pub(crate) use crate::live_file::read_text;

/// The name of a file as places show it: on one line.
pub(super) fn shown_name(path: &Path) -> Arc<str> {
    path.to_string_lossy().replace(char::is_control, "?").into()
}

/// Reads the file at `path`, and gives its text. `None`: nothing of it is known, so nothing can be missing from it.
pub(super) fn gather(
    path: &Path,
    settings: &mut Settings,
    mistakes: &mut Mistakes,
) -> Option<String> {
    let file = shown_name(path);
    let text = match read_text(path) {
        Ok(text) => text,
        Err(why) => {
            mistakes.push(&Origin::File { file, line: None }, why);
            return None;
        }
    };
    match Document::parse(text.as_str()) {
        Ok(document) => {
            Walk { file, text: &text, settings, mistakes }.document(&document);
            Some(text)
        }
        Err(error) => {
            let line = Some(line_of(&text, error.span()));
            // Only the message: the error's `Display` shows the line, which may hold a secret.
            let message = format!("this is not TOML: {}", error.message());
            mistakes.push(&Origin::File { file, line }, message);
            None
        }
    }
}

fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let start = span.map_or(0, |span| span.start.min(text.len()));
    text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1
}

struct Walk<'a> {
    file: Arc<str>,
    text: &'a str,
    settings: &'a mut Settings,
    mistakes: &'a mut Mistakes,
}

impl Walk<'_> {
    fn at(&self, span: Option<Range<usize>>) -> Origin {
        Origin::File { file: Arc::clone(&self.file), line: Some(line_of(self.text, span)) }
    }

    fn document(&mut self, document: &Document<&str>) {
        let root = document.as_table();
        for (name, item) in root.iter() {
            let place = self.at(key_span(root, name).or_else(|| item.span()));
            match Section::named(name) {
                Some(section) if section.is_array() => self.tables(section, item, &place),
                Some(section) => self.single(section, item, &place),
                None => self.mistakes.push(&place, unknown_section(name)),
            }
        }
    }

    fn single(&mut self, section: Section, item: &Item, place: &Origin) {
        if let Some(table) = item.as_table_like() {
            self.table(section, 0, table);
        } else {
            let found = item.type_name();
            self.mistakes.push(place, format!("expected the table {section}, found {found}"));
        }
    }

    fn tables(&mut self, section: Section, item: &Item, place: &Origin) {
        if let Some(tables) = array_of_tables(item) {
            for (index, (table, span)) in tables.into_iter().enumerate() {
                let origin = self.at(span);
                self.settings.mention(section, index, &origin);
                self.table(section, index, table);
            }
            return;
        }
        let found = item.type_name();
        self.mistakes
            .push(place, format!("expected tables headed {section} (two brackets), found {found}"));
        if let Some(table) = item.as_table_like() {
            // Taken as the first one, so that only what is wrong is reported.
            self.settings.mention(section, 0, place);
            self.table(section, 0, table);
        }
    }

    fn table(&mut self, section: Section, index: usize, table: &dyn TableLike) {
        for (name, item) in table.iter() {
            let place = self.at(key_span(table, name).or_else(|| item.span()));
            match Key::find(section, name) {
                Some(key) => {
                    let slot = Slot { section, index, name: key.name };
                    let value = self.value(item);
                    self.settings.set(slot, value, place);
                }
                None => self.mistakes.push(&place, unknown_key(section, name)),
            }
        }
    }

    fn value(&self, item: &Item) -> Value {
        let Item::Value(value) = item else { return Value::Other(item.type_name()) };
        match value {
            Toml::String(text) => Value::Text(text.value().clone()),
            Toml::Integer(number) => Value::Integer(*number.value()),
            Toml::Array(array) => array
                .iter()
                .map(|element| Some((element.as_str()?.to_owned(), self.at(element.span()))))
                .collect::<Option<_>>()
                .map_or(Value::Other("array with something else than strings"), Value::List),
            other => Value::Other(other.type_name()),
        }
    }
}

type Spanned<'a> = (&'a dyn TableLike, Option<Range<usize>>);

/// The tables of `[[route]]` or of `route = [{ … }]`; `None` if it is neither.
fn array_of_tables(item: &Item) -> Option<Vec<Spanned<'_>>> {
    match item {
        Item::ArrayOfTables(tables) => {
            Some(tables.iter().map(|table| (table as &dyn TableLike, table.span())).collect())
        }
        Item::Value(Toml::Array(array)) => array
            .iter()
            .map(|value| Some((value.as_inline_table()? as &dyn TableLike, value.span())))
            .collect(),
        _ => None,
    }
}

fn key_span(table: &dyn TableLike, name: &str) -> Option<Range<usize>> {
    table.get_key_value(name).and_then(|(key, _)| key.span())
}

fn unknown_section(name: &str) -> String {
    let unknown = format!("unknown key {name:?}");
    if let Some(section) = nearest(name, Section::ALL.map(Section::name)).and_then(Section::named) {
        return format!("{unknown}; did you mean {section}?");
    }
    belongs(name).map_or_else(
        || {
            let known: Vec<_> = Section::ALL.iter().map(ToString::to_string).collect();
            format!("{unknown}; the file has the tables {}", known.join(", "))
        },
        |section| format!("{unknown}; it belongs into {section}"),
    )
}

fn unknown_key(section: Section, name: &str) -> String {
    let unknown = format!("unknown key {name:?} in {section}");
    if let Some(key) = nearest(name, section.keys().map(|key| key.name)) {
        return format!("{unknown}; did you mean {key:?}?");
    }
    belongs(name).map_or_else(
        || {
            let known: Vec<_> = section.keys().map(|key| key.name).collect();
            format!("{unknown}; it has {}", known.join(", "))
        },
        |other| format!("{unknown}; it belongs into {other}"),
    )
}

/// The section that has a key of this name.
fn belongs(name: &str) -> Option<Section> {
    Section::ALL.into_iter().find(|section| Key::find(*section, name).is_some())
}
