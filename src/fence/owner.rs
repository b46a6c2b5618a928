//! The name that a lease holder gave itself.

use std::fmt;
use std::sync::Arc;

/// The name of a lease's owner: 1 to 256 bytes of UTF-8 without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

/// A text that cannot name an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an owner's name is 1 to 256 bytes without control characters")]
pub struct InvalidOwner;

impl Owner {
    /// Makes an owner of its name.
    ///
    /// # Errors
    /// The name is empty, longer than 256 bytes, or has control characters.
    pub fn new(name: &str) -> Result<Owner, InvalidOwner> {
        if name.is_empty() || name.len() > 256 || name.chars().any(char::is_control) {
            return Err(InvalidOwner);
        }
        Ok(Owner(Arc::from(name)))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Owner {
    type Err = InvalidOwner;

    fn from_str(name: &str) -> Result<Owner, InvalidOwner> {
        Owner::new(name)
    }
}

impl serde::Serialize for Owner {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Owner {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Owner, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}
