//! What a route's path pattern and its resource template may look like.

use super::mistakes::{nearest, shown};
use crate::fence::Resource;

/// The placeholder that stands for the whole normalised path.
const WHOLE_PATH: &str = "path";

/// A pattern that `matchit` takes and that a normalised path can match: one in another form would
/// never match, and what it was to fence would be refused, or fall to a wider route.
pub(super) fn path(text: &str) -> Result<String, String> {
    let shown = shown(text);
    if !text.starts_with('/') {
        return Err(format!("{shown} does not start with /"));
    }
    if text.contains("{{") || text.contains("}}") {
        return Err(format!("{shown}: {{{{ and }}}} are not supported"));
    }
    // As written, but for what is inside the braces of `{*rest}`.
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,=:@/{}".contains(c);
    if let Some(bad) = text.chars().find(|c| !is_allowed(*c)) {
        return Err(format!("{shown} has {bad:?}, which no normalised path has"));
    }
    if text.contains("//") {
        return Err(format!("{shown} has //, which no normalised path has"));
    }
    if text.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(format!("{shown} has a dot segment, which no normalised path has"));
    }
    if text.len() > 1 && text.ends_with('/') {
        let without = text.trim_end_matches('/');
        return Err(format!("{shown} ends with /, which no normalised path does: {without:?}"));
    }
    parameters_are_sound(text).map_err(|why| format!("{shown}: {why}"))?;
    matchit::Router::new()
        .insert(text, ())
        .map_err(|error| format!("{shown}: {}", lower_first(&error.to_string())))?;
    Ok(text.to_owned())
}

/// A pattern for paths in lower case; the names of its parameters stay.
pub(crate) fn caseless(pattern: &str) -> String {
    let mut is_name = false;
    pattern
        .chars()
        .map(|c| {
            is_name = (is_name || c == '{') && c != '}';
            if is_name { c } else { c.to_ascii_lowercase() }
        })
        .collect()
}

fn parameters_are_sound(pattern: &str) -> Result<(), String> {
    let names = parameters(pattern);
    for (nth, name) in names.iter().enumerate() {
        if *name == WHOLE_PATH {
            return Err("a parameter cannot be called path, as {path} is the whole path".into());
        }
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!("the parameter {name:?} is not a name of letters, digits and _"));
        }
        if names[..nth].contains(name) {
            return Err(format!("the parameter {{{name}}} is there twice"));
        }
    }
    Ok(())
}

/// The names of a pattern's parameters; as many as can be made out if it is not valid.
pub(super) fn parameters(pattern: &str) -> Vec<&str> {
    pattern
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| name.strip_prefix('*').unwrap_or(name))
        .collect()
}

/// A template of a resource's name, for a path with these parameters.
pub(super) fn template(parameters: &[&str]) -> impl Fn(&str) -> Result<String, String> {
    move |text| {
        if text.is_empty() {
            return Err("is empty, so it names no resource".to_owned());
        }
        if text.contains("{{") || text.contains("}}") {
            return Err("{{ and }} are not supported".to_owned());
        }
        if text.chars().any(char::is_control) {
            return Err(format!("{} has a control character", shown(text)));
        }
        if text.len() > Resource::MAX_BYTES {
            return Err(format!("is longer than a resource, {} bytes", Resource::MAX_BYTES));
        }
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let placeholder = rest[at..].strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let Some((name, after)) = placeholder.filter(|(name, _)| !name.contains('{')) else {
                return Err(format!("{} has a brace without its partner", shown(text)));
            };
            known_placeholder(name, parameters)?;
            rest = after;
        }
        Ok(text.to_owned())
    }
}

fn known_placeholder(name: &str, parameters: &[&str]) -> Result<(), String> {
    let known = || parameters.iter().copied().chain([WHOLE_PATH]);
    if known().any(|parameter| parameter == name) {
        return Ok(());
    }
    let bare = name.strip_prefix('*').unwrap_or(name);
    let meant = known().find(|parameter| *parameter == bare).or_else(|| nearest(bare, known()));
    let hint = match meant {
        Some(meant) => format!("did you mean {{{meant}}}?"),
        None => {
            let all: Vec<_> = known().map(|parameter| format!("{{{parameter}}}")).collect();
            format!("the path gives {}", all.join(", "))
        }
    };
    Err(format!("{{{}}} is no parameter of the path; {hint}", name.escape_debug()))
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
