//! Who is who, and who may do what: the content of the credentials file.
//!
//! Invariant: whatever is presented is compared with every credential there is, in constant time,
//! so that how long a refusal takes says nothing. Nothing here can show a token: only hashes are
//! known.

mod file;

use std::collections::BTreeMap;
use std::sync::Arc;

use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::token::TokenHash;
use super::verb::{Scope, Verb};

/// Each is compared with every token that is presented.
const MOST_TOKENS: usize = 1000;

/// A text, or the beginning of one: `job:*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(String);

/// Somebody who is known.
#[derive(Debug)]
pub struct Credential {
    name: String,
    may: Vec<Verb>,
    owners: Vec<Pattern>,
    resources: Vec<Pattern>,
}

/// Everybody who is known.
#[derive(Debug, Default)]
pub struct Credentials {
    /// Each with whose it is, as a position in `known`.
    tokens: Vec<(TokenHash, u32)>,
    /// By each name in a certificate.
    certificates: BTreeMap<String, u32>,
    known: Vec<Arc<Credential>>,
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => text.starts_with(beginning),
            None => text == self.0,
        }
    }
}

impl Credentials {
    /// Reads the text of a credentials file.
    ///
    /// # Errors
    /// All that is wrong with it, each with its line.
    pub fn parse(text: &str) -> Result<Arc<Credentials>, Vec<String>> {
        file::parse(text).map(Arc::new)
    }

    /// Whose token this is.
    pub(super) fn of_token(&self, token: &[u8]) -> Option<&Arc<Credential>> {
        let presented = TokenHash::of(token);
        let mut found = u32::MAX;
        for (hash, whose) in &self.tokens {
            found = u32::conditional_select(&found, whose, hash.ct_eq(&presented));
        }
        self.known.get(usize::try_from(found).ok()?)
    }

    /// Whose certificate this is, by the names in it; nobody's, if they are of several.
    pub(super) fn of_certificate(&self, names: &[String]) -> Option<&Arc<Credential>> {
        let mut owners = names.iter().filter_map(|name| self.certificates.get(name));
        let first = owners.next()?;
        if owners.any(|other| other != first) {
            return None;
        }
        self.known.get(usize::try_from(*first).ok()?)
    }
}

impl Credential {
    /// What the log calls it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// # Errors
    /// Says what it may not.
    pub(super) fn check(&self, verb: Verb, scope: Scope<'_>) -> Result<(), String> {
        let name = &self.name;
        if !self.may.contains(&verb) {
            return Err(format!("the credential {name} may not {}", verb.as_str()));
        }
        if matches!(scope, Scope::AllResources) && !self.covers_all_resources() {
            return Err(format!(
                "the credential {name} may {} some resources only, so it can have no list of all",
                verb.as_str()
            ));
        }
        let is_among = |patterns: &[Pattern], text: &str| patterns.iter().any(|p| p.matches(text));
        if let Some(resource) = scope.resource()
            && !is_among(&self.resources, resource.as_str())
        {
            return Err(format!("the credential {name} may not {} this resource", verb.as_str()));
        }
        if let Some(owner) = scope.owner()
            && !is_among(&self.owners, owner.as_str())
        {
            return Err(format!("the credential {name} may not act as the owner {owner}"));
        }
        Ok(())
    }

    fn covers_all_resources(&self) -> bool {
        self.resources.iter().any(|pattern| pattern.0 == "*")
    }
}

#[cfg(test)]
mod tests;
