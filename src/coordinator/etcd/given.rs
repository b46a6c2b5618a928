//! Which key a lease has that was acquired here, so that the first question about it asks for that key alone.
//!
//! The holder is the key with the lowest create revision below its resource's place. A key that once was that one is
//! it for as long as it is there, since every key that comes after it has a higher create revision: so whether it is
//! still there answers who holds the lease. To look at all keys of the place costs etcd time for each one that has
//! been there since its last compaction.
//! What is known here decides nothing: a key that is not there any more means looking at the whole place.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::fence::{Resource, Token};

/// Most leases are asked about once, soon after they were acquired. More than that are forgotten, which costs time
/// and nothing else.
const MOST: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Given(Mutex<HashMap<Resource, First>>);

/// A key that was the first of its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct First {
    pub(super) key: String,
    /// Its create revision.
    pub(super) token: Token,
}

impl Given {
    /// Notes a key that was just found, or made, the first of its place.
    pub(super) fn note(&self, resource: &Resource, key: &str, token: Token) {
        let mut given = self.lock();
        if given.len() >= MOST {
            given.clear();
        }
        given.insert(resource.clone(), First { key: key.to_owned(), token });
    }

    /// What is known, once.
    pub(super) fn take(&self, resource: &Resource) -> Option<First> {
        self.lock().remove(resource)
    }

    /// A key of this place is gone.
    pub(super) fn ended(&self, resource: &Resource, key: &[u8]) {
        let mut given = self.lock();
        if given.get(resource).is_some_and(|first| first.key.as_bytes() == key) {
            given.remove(resource);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Resource, First>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_known_once_and_until_its_key_ends() {
        let (given, resource) = (Given::default(), Resource::new("a").unwrap());
        let token = Token::from_i64(7).unwrap();
        given.note(&resource, "/a/1", token);
        given.ended(&resource, b"/a/2");
        assert_eq!(given.take(&resource), Some(First { key: "/a/1".to_owned(), token }));
        assert_eq!(given.take(&resource), None);
        given.note(&resource, "/a/1", token);
        given.ended(&resource, b"/a/1");
        assert_eq!(given.take(&resource), None);
    }

    #[test]
    fn what_nobody_asks_about_does_not_pile_up() {
        let given = Given::default();
        for n in 0..=MOST {
            let resource = Resource::new(&format!("r{n}")).unwrap();
            given.note(&resource, "key", Token::from_i64(1).unwrap());
        }
        assert!(given.lock().len() <= MOST);
        assert!(given.take(&Resource::new(&format!("r{MOST}")).unwrap()).is_some());
    }
}
