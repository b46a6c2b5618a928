//! Prints the effective configuration.

use super::Config;
use super::keys::{Absent, Key, Kind, Section, Slot};
use super::mistakes::Origin;
use super::settings::{Settings, Value};
use crate::store::PostgresUrl;

/// A file that loads to `config`, with the origin of each value that somebody set.
pub(super) fn toml(config: &Config, settings: &Settings) -> String {
    let mut tables = Vec::new();
    for section in Section::ALL {
        let indexes: Vec<_> = if section.is_array() {
            settings.tables(section).map(|(index, _)| index).collect()
        } else {
            vec![0]
        };
        for index in indexes {
            let lines: Vec<_> = section
                .keys()
                .filter_map(|key| {
                    line(key, Slot { section, index, name: key.name }, config, settings)
                })
                .collect();
            tables.push(format!("{section}\n{}\n", lines.join("\n")));
        }
    }
    tables.join("\n")
}

fn line(key: &Key, slot: Slot, config: &Config, settings: &Settings) -> Option<String> {
    let name = key.name;
    let url_file = Slot { section: Section::Store, index: 0, name: "url_file" };
    if slot == (Slot { name: "url", ..url_file }) && settings.get(url_file).is_some() {
        // What was read from it may be a secret.
        return None;
    }
    if let (Section::Store, Some((Value::Text(text), origin))) = (slot.section, settings.get(slot))
        && PostgresUrl::holds_password(text)
    {
        return Some(format!("# {name}: holds a password and is not shown  # {origin}"));
    }
    match (settings.get(slot), key.absent) {
        (Some((value, Origin::Default)), _) => Some(format!("{name} = {}", rendered(key, value)?)),
        (Some((value, origin)), _) => {
            Some(format!("{name} = {}  # {origin}", rendered(key, value)?))
        }
        (None, Absent::Default(text)) => Some(format!("{name} = {}", scalar(key, text))),
        (None, Absent::Means(says, _)) => implied(slot, says, config),
        (None, Absent::Mistake(_)) => None,
    }
}

/// The line of a key that nobody set and that has no fixed default.
fn implied(slot: Slot, says: &str, config: &Config) -> Option<String> {
    let Slot { section, index, name } = slot;
    let value = match (section, name) {
        (Section::Listen, "workers") => {
            return Some(format!("workers = {}  # {says}", config.listen.workers));
        }
        (Section::Route, "fenced") => {
            return Some(format!("# fenced: {says}"));
        }
        (Section::Upstream, "name") => &config.upstreams.get(index)?.name,
        (Section::Route, "name") => &config.routes.get(index)?.name,
        (Section::Route, "upstream") => {
            &config.upstreams.get(config.routes.get(index)?.upstream)?.name
        }
        _ => return None,
    };
    Some(format!("{name} = {}", quoted(value)))
}

fn rendered(key: &Key, value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(scalar(key, text)),
        Value::Integer(number) => Some(number.to_string()),
        Value::List(elements) => {
            let elements: Vec<_> = elements.iter().map(|(text, _)| quoted(text)).collect();
            Some(format!("[{}]", elements.join(", ")))
        }
        Value::Other(_) => None,
    }
}

fn scalar(key: &Key, text: &str) -> String {
    match key.kind {
        Kind::Number => text.to_owned(),
        _ => quoted(text),
    }
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}
