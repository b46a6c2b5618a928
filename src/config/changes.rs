//! What a new configuration would change of a running one.

use super::build::names;
use super::keys::{Absent, KEYS, Key, Section, Slot};
use super::load::Loaded;
use super::settings::{Settings, Value};

impl Key {
    /// Whether a reload can change it. A new key of an upstream or a route has to be thought about first: it must
    /// not change which resource a request writes to without [`crate::gateway`] seeing that.
    pub(super) fn can_change(&self) -> bool {
        match self.section {
            Section::Listen => {
                matches!(self.name, "proxy_protocol_from" | "trusted_proxies" | "forwarded")
            }
            Section::Access
            | Section::Store
            | Section::Coordinator
            | Section::Metrics
            | Section::Telemetry => false,
            Section::Limits | Section::Shutdown => true,
            Section::Upstream => matches!(
                self.name,
                "name"
                    | "url"
                    | "timeout"
                    | "settle"
                    | "connect_timeout"
                    | "idle"
                    | "connections"
                    | "waiting"
                    | "protocol"
            ),
            Section::Route => matches!(
                self.name,
                "name"
                    | "path"
                    | "resource"
                    | "upstream"
                    | "fenced"
                    | "mode"
                    | "tokens"
                    | "case"
                    | "drain"
                    | "wait"
                    | "buffer"
                    | "max_body"
                    | "concurrency"
                    | "rate"
            ),
        }
    }
}

impl Loaded {
    /// What is different from the configuration that runs and can be changed by a restart only, one line for each
    /// key with its place. No line shows a value: it may be a secret.
    #[must_use]
    pub fn needs_restart(&self, running: &Loaded) -> Vec<String> {
        let (new, old) = (&self.settings, &running.settings);
        let fixed = KEYS.iter().filter(|key| !key.can_change());
        let changed = fixed.flat_map(|key| {
            let slot = |index| Slot { section: key.section, index, name: key.name };
            tables(key.section, new, old)
                .into_iter()
                .map(move |(index, was)| (slot(index), was.map(slot)))
                .filter(|(is, was)| said(key, Some(*is), new) != said(key, *was, old))
                .map(move |(slot, _)| {
                    let place = new.origin(slot);
                    format!("{place}: {key}: a running gateway cannot change it; restart it")
                })
        });
        changed.collect()
    }
}

/// The tables of the new configuration, each with the one of the old that has its name: one that is put in front
/// of others changes none of them.
fn tables(section: Section, new: &Settings, old: &Settings) -> Vec<(usize, Option<usize>)> {
    if !section.is_array() {
        return vec![(0, Some(0))];
    }
    let old = names(old, section);
    let new = names(new, section).into_iter().enumerate();
    new.map(|(index, (name, _))| (index, old.iter().position(|(was, _)| *was == name))).collect()
}

/// The value, as it is written; of a table that is not there, what holds where nothing is.
fn said(key: &Key, slot: Option<Slot>, settings: &Settings) -> Option<String> {
    match (slot.and_then(|slot| settings.get(slot)), key.absent) {
        (Some((Value::Text(text), _)), _) => Some(text.clone()),
        (Some((Value::Integer(number), _)), _) => Some(number.to_string()),
        (Some((Value::List(elements), _)), _) => {
            let texts: Vec<_> = elements.iter().map(|(text, _)| text.as_str()).collect();
            Some(texts.join(","))
        }
        (None, Absent::Default(text)) => Some(text.to_owned()),
        (Some((Value::Other(_), _)) | None, _) => None,
    }
}
