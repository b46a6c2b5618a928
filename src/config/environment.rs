//! Reads environment variables and flags into settings.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::keys::{KEYS, Key, Kind, PREFIX, Slot};
use super::load::Override;
use super::mistakes::{Mistakes, Origin, nearest};
use super::settings::{Settings, Value};

/// The variable that names the file.
pub(super) const CONFIG_VARIABLE: &str = "FENCEGATE_CONFIG";

/// The variable that says what is logged.
pub(super) const LOG_VARIABLE: &str = "FENCEGATE_LOG";

/// Variables with our prefix that are no keys: those above, and where `fence`, `lease` and `run`
/// find a gateway or etcd, and how they are known there.
const OTHER_VARIABLES: &[&str] = &[
    CONFIG_VARIABLE,
    LOG_VARIABLE,
    "FENCEGATE_ADMIN",
    "FENCEGATE_LEASES",
    "FENCEGATE_TOKEN_FILE",
    "FENCEGATE_CA_FILE",
    "FENCEGATE_CERT_FILE",
    "FENCEGATE_KEY_FILE",
    "FENCEGATE_ETCD_USERNAME",
    "FENCEGATE_ETCD_PASSWORD_FILE",
    "FENCEGATE_ETCD_CA_FILE",
    "FENCEGATE_ETCD_CERT_FILE",
    "FENCEGATE_ETCD_KEY_FILE",
];

/// Reads every variable with our prefix.
pub(super) fn gather(
    environment: &BTreeMap<OsString, OsString>,
    settings: &mut Settings,
    mistakes: &mut Mistakes,
) {
    for (name, value) in environment {
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX) || is_service_link(&name, value) {
            continue;
        }
        let origin = Origin::Environment(name.replace(char::is_control, "?"));
        if OTHER_VARIABLES.contains(&name.as_ref()) {
            continue;
        }
        match (slot(&name), text(value)) {
            (None, _) => mistakes.push(&origin, unknown(&name)),
            (Some(_), Err(why)) => mistakes.push(&origin, why),
            (Some(slot), Ok(text)) => settings.set(slot, parse(slot, text, &origin), origin),
        }
    }
}

/// Reads flags, which override everything else.
///
/// A flag about an upstream or a route means the one that the flags make; a file that has its own
/// is not bent by them, as it would be unclear which one is meant.
pub(super) fn apply(overrides: &[Override], settings: &mut Settings, mistakes: &mut Mistakes) {
    for Override { path, value, flag } in overrides {
        let origin = Origin::Flag(flag);
        let parts: Vec<_> = path.split('.').collect();
        let Some(slot) = Slot::parse(&parts) else {
            mistakes.push(&origin, format!("sets the unknown key {path:?}"));
            continue;
        };
        if let Some(place) = settings.in_file(slot.section) {
            let message = format!(
                "{place} has a {} of its own: set {:?} there, or leave the flag out",
                slot.section, slot.name
            );
            mistakes.push(&origin, message);
        } else {
            settings.set(slot, parse(slot, value, &origin), origin);
        }
    }
}

/// An empty variable is no value: it is as likely an accident as it is meant.
pub(super) const EMPTY: &str = "is set, but empty; give it a value or unset it";

pub(super) fn text(value: &OsStr) -> Result<&str, String> {
    match value.to_str() {
        Some("") => Err(EMPTY.to_owned()),
        Some(text) => Ok(text),
        None => Err("is not UTF-8 text".to_owned()),
    }
}

fn slot(variable: &str) -> Option<Slot> {
    let path = variable.strip_prefix(PREFIX)?;
    if path.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return None;
    }
    let path = path.to_ascii_lowercase();
    Slot::parse(&path.split("__").collect::<Vec<_>>())
}

/// A list is separated by commas. The empty list is written `[]`, so that nobody unfences a route
/// by an empty variable.
fn parse(slot: Slot, text: &str, origin: &Origin) -> Value {
    match Key::find(slot.section, slot.name).map(|key| key.kind) {
        Some(Kind::Methods | Kind::Resources | Kind::Networks) if text.trim() == "[]" => {
            Value::List(Vec::new())
        }
        Some(Kind::Methods | Kind::Resources | Kind::Networks) => {
            let element = |part: &str| (part.trim().to_owned(), origin.clone());
            Value::List(text.split(',').map(element).collect())
        }
        _ => Value::Text(text.to_owned()),
    }
}

fn unknown(variable: &str) -> String {
    let index = variable
        .split(|c: char| !c.is_ascii_digit())
        .find_map(|digits| digits.parse().ok())
        .unwrap_or(0);
    let known = KEYS
        .iter()
        .map(|key| Slot { section: key.section, index, name: key.name }.variable())
        .chain(OTHER_VARIABLES.iter().map(|name| (*name).to_owned()));
    // Only what follows the prefix, which all of them share.
    let bare = known.map(|name| name[PREFIX.len()..].to_owned());
    match nearest(&variable[PREFIX.len()..].to_ascii_uppercase(), bare) {
        Some(name) => format!("unknown variable; did you mean {PREFIX}{name}?"),
        None => {
            let example = "FENCEGATE_STORE__URL or FENCEGATE_ROUTE__0__PATH";
            format!("unknown variable; keys are named like {example}")
        }
    }
}

/// Kubernetes tells every pod about the services of its namespace, so one that is called
/// `fencegate` or `fencegate-leases` sets `FENCEGATE_SERVICE_HOST`, `FENCEGATE_PORT_8080_TCP_ADDR`
/// and so on. None of our keys looks like that.
fn is_service_link(variable: &str, value: &OsStr) -> bool {
    let name = &variable[PREFIX.len() - 1..];
    let is_url = || value.to_str().is_some_and(|value| value.contains("://"));
    let has_protocol = || ["_TCP", "_UDP", "_SCTP"].iter().any(|kind| name.contains(kind));
    !name.contains("__")
        && (name.ends_with("_SERVICE_HOST")
            || name.contains("_SERVICE_PORT")
            || (name.ends_with("_PORT") && is_url())
            || (name.contains("_PORT_") && has_protocol()))
}
