//! What a new configuration would change of a running one.

use super::keys::{Absent, KEYS, Key, Slot};
use super::load::Loaded;
use super::settings::{Settings, Value};

impl Loaded {
    /// What is different from the configuration that runs and can be changed by a restart only, one line for each
    /// key with its place. No line shows a value: it may be a secret.
    #[must_use]
    pub fn needs_restart(&self, running: &Loaded) -> Vec<String> {
        let fixed = KEYS.iter().filter(|key| !key.can_change());
        let changed = fixed.flat_map(|key| {
            slots(key, [&self.settings, &running.settings])
                .into_iter()
                .filter(|slot| {
                    said(key, *slot, &self.settings) != said(key, *slot, &running.settings)
                })
                .map(move |slot| {
                    let place = self.settings.origin(slot);
                    format!("{place}: {key}: a running gateway cannot change it; restart it")
                })
        });
        changed.collect()
    }
}

/// Where the key may be, in either.
fn slots(key: &Key, all: [&Settings; 2]) -> Vec<Slot> {
    let tables = |settings: &Settings| settings.tables(key.section).count();
    let count = if key.section.is_array() { all.map(tables).into_iter().max() } else { Some(1) };
    let slot = |index| Slot { section: key.section, index, name: key.name };
    (0..count.unwrap_or_default()).map(slot).collect()
}

/// The value, as it is written.
fn said(key: &Key, slot: Slot, settings: &Settings) -> Option<String> {
    match (settings.get(slot), key.absent) {
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
