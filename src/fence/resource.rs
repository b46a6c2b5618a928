//! The name of the thing protected.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The name of a resource: 1 to 1024 bytes of UTF-8 without control characters.
///
/// Cheap to clone. The bound lets every store and coordinator keep the name as a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<str>);

/// Why a text cannot name a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidResource {
    /// Nothing was given.
    #[error("the resource name is empty")]
    Empty,
    /// The name has more than [`Resource::MAX_BYTES`] bytes.
    #[error("the resource name is longer than 1024 bytes")]
    TooLong,
    /// The name has a control character.
    #[error("the resource name has a control character")]
    Control,
}

impl Resource {
    /// The longest name, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 1024;

    /// Makes a resource of its name.
    ///
    /// # Errors
    /// Says what is wrong with the name.
    pub fn new(name: &str) -> Result<Resource, InvalidResource> {
        Resource::check(name)?;
        Ok(Resource(Arc::from(name)))
    }

    /// Tells whether `name` can name a resource, without making one: the fast path looks a
    /// resource up by a borrowed name and must not allocate.
    ///
    /// # Errors
    /// Says what is wrong with the name.
    pub fn check(name: &str) -> Result<(), InvalidResource> {
        match name {
            "" => Err(InvalidResource::Empty),
            _ if name.len() > Resource::MAX_BYTES => Err(InvalidResource::TooLong),
            _ if name.chars().any(char::is_control) => Err(InvalidResource::Control),
            _ => Ok(()),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Resource {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Resource {
    type Err = InvalidResource;

    fn from_str(name: &str) -> Result<Resource, InvalidResource> {
        Resource::new(name)
    }
}

impl serde::Serialize for Resource {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Resource {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Resource, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_printable() {
        assert!(Resource::new("account:7").is_ok());
        assert!(Resource::new(&"é".repeat(512)).is_ok());
        assert_eq!(Resource::new(""), Err(InvalidResource::Empty));
        assert_eq!(Resource::new(&"x".repeat(1025)), Err(InvalidResource::TooLong));
        for control in ["a\nb", "\0", "\u{7f}", "\u{85}"] {
            assert_eq!(Resource::new(control), Err(InvalidResource::Control), "{control:?}");
        }
    }
}
