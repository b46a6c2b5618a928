//! The merged settings: every value with the place it came from, still unread.

use std::collections::BTreeMap;

use super::keys::{Section, Slot};
use super::mistakes::{Mistakes, Origin};

/// A value before it is read.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    /// Each element with its own place, as an array may span lines.
    List(Vec<(String, Origin)>),
    /// No key takes it; the text names the type.
    Other(&'static str),
}

/// All layers, merged: a later layer overrides an earlier one value by value.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// Upstreams and routes by index, with where each was first mentioned.
    tables: BTreeMap<(Section, usize), Origin>,
    values: BTreeMap<Slot, (Value, Origin)>,
}

impl Settings {
    /// Notes that an upstream or a route exists, even if nothing in it is set.
    pub(super) fn mention(&mut self, section: Section, index: usize, origin: &Origin) {
        if section.is_array() {
            self.tables.entry((section, index)).or_insert_with(|| origin.clone());
        }
    }

    /// Sets a value over what an earlier layer said.
    pub(super) fn set(&mut self, slot: Slot, value: Value, origin: Origin) {
        self.mention(slot.section, slot.index, &origin);
        self.values.insert(slot, (value, origin));
    }

    pub(super) fn unset(&mut self, slot: Slot) {
        self.values.remove(&slot);
    }

    pub(super) fn get(&self, slot: Slot) -> Option<(&Value, &Origin)> {
        self.values.get(&slot).map(|(value, origin)| (value, origin))
    }

    /// Where a value came from.
    pub(super) fn origin(&self, slot: Slot) -> Origin {
        self.get(slot).map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// Upstreams or routes, in the order of their indexes.
    pub(super) fn tables(&self, section: Section) -> impl Iterator<Item = (usize, &Origin)> {
        self.tables
            .iter()
            .filter(move |((of, _), _)| *of == section)
            .map(|((_, index), origin)| (*index, origin))
    }

    /// Where the file has a table of this section.
    pub(super) fn in_file(&self, section: Section) -> Option<&Origin> {
        self.tables(section)
            .map(|(_, origin)| origin)
            .find(|origin| matches!(origin, Origin::File { .. }))
    }

    /// Only the environment can leave gaps: a file has no indexes.
    pub(super) fn check_numbering(&self, mistakes: &mut Mistakes) {
        for section in [Section::Upstream, Section::Route] {
            let gap = self.tables(section).enumerate().find(|(nth, (index, _))| nth != index);
            if let Some((nth, (index, origin))) = gap {
                let name = section.name();
                mistakes.push(
                    origin,
                    format!(
                        "there is no {name} {nth} before {name} {index}: number them from 0 \
                         without gaps"
                    ),
                );
            }
        }
    }
}
