//! Reads the credentials file. Every mistake is reported, with its line and never with a hash.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml_edit::{Document, Item, Table, Value};

use super::{Credential, Credentials, MOST_TOKENS, Pattern};
use crate::access::token::TokenHash;
use crate::access::verb::Verb;

const KEYS: [&str; 6] = ["name", "sha256", "certificate", "may", "owners", "resources"];
/// What the log calls those who need no credential.
const RESERVED: &str = "anyone";
const NAME_BYTES: usize = 64;
const PATTERN_BYTES: usize = 1024;

struct Walk<'a> {
    text: &'a str,
    mistakes: Vec<String>,
    /// Names and hashes, by the line of their first use.
    taken: BTreeMap<String, usize>,
}

pub(super) fn parse(text: &str) -> Result<Credentials, Vec<String>> {
    let mut walk = Walk { text, mistakes: Vec::new(), taken: BTreeMap::new() };
    let document = Document::parse(text).map_err(|error| {
        // Only the message: the error's `Display` shows the line, which may hold a token by mistake.
        vec![format!("line {}: this is not TOML: {}", walk.line(error.span()), error.message())]
    })?;
    let mut credentials = Credentials::default();
    for (name, item) in document.as_table().iter() {
        match (name, item) {
            ("credential", Item::ArrayOfTables(tables)) => {
                for table in tables {
                    walk.credential(table, &mut credentials);
                }
            }
            ("credential", _) => walk.mistake(item.span(), "write [[credential]], two brackets"),
            (name, _) => {
                let what = format!("unknown key {name:?}; the file has [[credential]] tables");
                walk.mistake(item.span(), what);
            }
        }
    }
    if credentials.tokens.len() > MOST_TOKENS {
        walk.mistakes.push(format!("more than {MOST_TOKENS} hashes are named"));
    }
    if walk.mistakes.is_empty() { Ok(credentials) } else { Err(walk.mistakes) }
}

impl Walk<'_> {
    fn line(&self, span: Option<Range<usize>>) -> usize {
        let start = span.map_or(0, |span| span.start.min(self.text.len()));
        self.text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    fn mistake(&mut self, span: Option<Range<usize>>, what: impl AsRef<str>) {
        let line = self.line(span);
        self.mistakes.push(format!("line {line}: {}", what.as_ref()));
    }

    fn credential(&mut self, table: &Table, credentials: &mut Credentials) {
        for (name, item) in table.iter().filter(|(name, _)| !KEYS.contains(name)) {
            let what = format!("unknown key {name:?}; a credential has {}", KEYS.join(", "));
            self.mistake(item.span(), what);
        }
        let name = self.name(table);
        let hashes = self.list(table, "sha256", |text| {
            TokenHash::parse(text).ok_or_else(|| {
                "sha256 is 64 hexadecimal digits; fencegate credential new prints them".to_owned()
            })
        });
        let certificates = self.list(table, "certificate", certificate);
        let may = self.list(table, "may", verb);
        let owners = self.list(table, "owners", pattern);
        let resources = self.list(table, "resources", pattern);
        self.complete(table, &may, resources.as_deref());
        self.once(table, "sha256", hashes.iter().flatten().map(ToString::to_string));
        self.once(table, "certificate", certificates.iter().flatten().cloned());
        self.once(table, "name", name.iter().cloned());
        let (Some(name), Some(may)) = (name, may) else { return };
        // So that a worker that is known by one name may have many, and nobody else's.
        let own = || vec![Pattern(name.clone()), Pattern(format!("{name}:*"))];
        let whose = u32::try_from(credentials.known.len()).unwrap_or(u32::MAX);
        credentials.tokens.extend(hashes.into_iter().flatten().map(|hash| (hash, whose)));
        let of_certificates = certificates.into_iter().flatten().map(|name| (name, whose));
        credentials.certificates.extend(of_certificates);
        credentials.known.push(Arc::new(Credential {
            owners: owners.unwrap_or_else(own),
            name,
            may,
            resources: resources.unwrap_or_default(),
        }));
    }

    /// What has to be there.
    fn complete(&mut self, table: &Table, may: &Option<Vec<Verb>>, resources: Option<&[Pattern]>) {
        if !table.contains_key("sha256") && !table.contains_key("certificate") {
            let what = "sha256 is missing, which fencegate credential new prints, or certificate";
            self.mistake(table.span(), what);
        }
        if may.is_none() && !table.contains_key("may") {
            self.mistake(table.span(), format!("may is missing; it lists some of {}", verbs()));
        }
        let needs = may.iter().flatten().find(|verb| verb.is_about_resources());
        if let Some(verb) = needs
            && resources.is_none()
            && !table.contains_key("resources")
        {
            let verb = verb.as_str();
            let what = format!("resources is missing, which {verb} needs; [\"*\"] is all");
            self.mistake(table.span(), what);
        }
    }

    fn name(&mut self, table: &Table) -> Option<String> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        match table.get("name").map(|item| (item.as_str(), item.span())) {
            Some((Some(RESERVED), span)) => {
                self.mistake(span, "the name anyone stands for those without a credential");
            }
            Some((Some(name), _))
                if (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed) =>
            {
                return Some(name.to_owned());
            }
            Some((_, span)) => {
                let what = "a name is 1 to 64 of letters, digits, _, - and ., in quotes";
                self.mistake(span, what);
            }
            None => self.mistake(table.span(), "name is missing; the log calls it so"),
        }
        None
    }

    /// One text or a list of them; `None`: there is none, or a mistake was noted.
    fn list<T>(
        &mut self,
        table: &Table,
        key: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let item = table.get(key)?;
        let values: Vec<&Value> = match item.as_value() {
            Some(Value::Array(array)) => array.iter().collect(),
            Some(value) => vec![value],
            None => Vec::new(),
        };
        if values.is_empty() {
            self.mistake(item.span(), format!("{key} is empty, or no text or list of texts"));
            return None;
        }
        let before = self.mistakes.len();
        let mut read_values = Vec::new();
        for value in values {
            let text = value.as_str().ok_or_else(|| format!("{key} takes texts, in quotes"));
            match text.and_then(&read) {
                Ok(read) => read_values.push(read),
                Err(what) => self.mistake(value.span(), what),
            }
        }
        (self.mistakes.len() == before).then_some(read_values)
    }

    /// What two credentials share would make one of them the other.
    fn once(&mut self, table: &Table, key: &str, values: impl Iterator<Item = String>) {
        let span = table.get(key).and_then(Item::span);
        let line = self.line(span.clone());
        for value in values {
            if let Some(first) = self.taken.get(&value) {
                let what = format!("{key} was given before, in line {first}");
                self.mistake(span.clone(), what);
            } else {
                self.taken.insert(value, line);
            }
        }
    }
}

fn verbs() -> String {
    Verb::ALL.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(", ")
}

fn verb(text: &str) -> Result<Verb, String> {
    let found = Verb::ALL.iter().find(|verb| verb.as_str() == text);
    found.copied().ok_or_else(|| format!("{text:?} is none of {}", verbs()))
}

/// As the gateway reads names out of a certificate: with their kind.
fn certificate(text: &str) -> Result<String, String> {
    let kinds = ["CN=", "DNS:", "URI:", "email:"];
    let is_named =
        kinds.iter().any(|kind| text.strip_prefix(kind).is_some_and(|name| !name.is_empty()));
    if is_named {
        return Ok(text.to_owned());
    }
    Err(format!("certificate {text:?} is not a name behind one of {}", kinds.join(", ")))
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let is_bounded = (1..=PATTERN_BYTES).contains(&text.len());
    // One in the midst would look as if it stood for something.
    let has_inner_star = text.strip_suffix('*').unwrap_or(text).contains('*');
    if !is_bounded || has_inner_star || text.chars().any(char::is_control) {
        return Err(format!("{text:?} is no pattern: 1 to 1024 bytes, with * at its end only"));
    }
    Ok(Pattern(text.to_owned()))
}
