//! Which keys a lease has, and what a key says about its lease.
//!
//! Pure. The holder of a lease is the key with the lowest create revision below the resource's
//! place, whoever wrote it and whatever is in it; that revision is the token. Only keys with a
//! [`Value`] of ours are ever changed or deleted here.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, SortOrder, SortTarget, TxnOp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::Layout;
use crate::clock::WallTime;
use crate::coordinator::Lease;
use crate::fence::{Owner, Resource, Token};

/// Everything but the unreserved characters of RFC 3986. Above all the `/`: else the keys of `a/b`
/// would be below those of `a`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Owners are shown with at most this many bytes of a foreign key.
const MOST_OWNER_BYTES: usize = 256;

/// The keys of all leases.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    layout: Layout,
}

/// What our keys hold. Others may put into theirs what they like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Value {
    pub(super) owner: Owner,
    /// The coordinator that wrote it, which counts its end.
    pub(super) by: String,
    pub(super) ttl_ms: u64,
    /// Milliseconds since 1970; `None` while its owner waits.
    pub(super) acquired_at: Option<i64>,
    /// Milliseconds since 1970, by the clock of who wrote it. What counts is that the key is there.
    pub(super) expires_at: i64,
}

/// A key that holds a lease or waits for it.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) key: Vec<u8>,
    pub(super) token: Token,
    /// The etcd lease, 0 if there is none.
    pub(super) lease_id: i64,
    /// `None`: the key was written by another program.
    pub(super) value: Option<Value>,
    /// What another program put into it, if that can name an owner.
    foreign: Option<Owner>,
}

impl Keys {
    pub(super) fn new(prefix: &str, layout: Layout) -> Keys {
        Keys { prefix: prefix.trim_end_matches('/').to_owned(), layout }
    }

    pub(super) const fn layout(&self) -> Layout {
        self.layout
    }

    /// What all keys of all leases begin with.
    pub(super) fn all(&self) -> String {
        format!("{}/", self.prefix)
    }

    /// The sentinel of one store. It is where no resource has its keys, since none has an empty name.
    pub(super) fn sentinel(&self, store: &str) -> String {
        format!("{}//sentinel/{store}", self.prefix)
    }

    /// What the keys of this lease begin with, or the only one.
    pub(super) fn place(&self, resource: &Resource) -> String {
        let name = utf8_percent_encode(resource.as_str(), ESCAPED);
        match self.layout {
            Layout::Mutex => format!("{}/{name}/", self.prefix),
            Layout::Key => format!("{}/{name}", self.prefix),
        }
    }

    /// The key of a claim that has this etcd lease.
    pub(super) fn own(&self, resource: &Resource, lease_id: i64) -> String {
        match self.layout {
            Layout::Mutex => format!("{}{lease_id:x}", self.place(resource)),
            Layout::Key => self.place(resource),
        }
    }

    /// The resource that a key is about; `None` if it is no key of ours to read.
    pub(super) fn resource(&self, key: &[u8]) -> Option<Resource> {
        let rest = key.strip_prefix(self.all().as_bytes())?;
        let name = match self.layout {
            Layout::Mutex => {
                let end = rest.iter().position(|byte| *byte == b'/')?;
                (rest.len() > end + 1).then_some(&rest[..end])?
            }
            Layout::Key => rest,
        };
        let resource = Resource::new(&percent_decode(name).decode_utf8().ok()?).ok()?;
        // A name that is written in another way than ours is another place in etcd.
        let written = utf8_percent_encode(resource.as_str(), ESCAPED).to_string();
        (written.as_bytes() == name).then_some(resource)
    }

    /// Reads the claims of a lease, the holder's first.
    pub(super) fn read(&self, resource: &Resource, limit: i64) -> TxnOp {
        let options = match self.layout {
            Layout::Mutex => GetOptions::new()
                .with_prefix()
                .with_sort(SortTarget::Create, SortOrder::Ascend)
                .with_limit(limit),
            Layout::Key => GetOptions::new(),
        };
        TxnOp::get(self.place(resource), Some(options))
    }

    /// Holds if the create revision of each claim of the lease compares so. Without any claim it is
    /// 0 that is compared.
    pub(super) fn each(&self, resource: &Resource, how: CompareOp, revision: i64) -> Compare {
        let compare = Compare::create_revision(self.place(resource), how, revision);
        match self.layout {
            Layout::Mutex => compare.with_prefix(),
            Layout::Key => compare,
        }
    }
}

impl Value {
    pub(super) fn bytes(&self) -> Vec<u8> {
        // Texts and numbers alone: there is nothing in it that could fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// The lease as it was written down.
    pub(super) fn lease(&self, resource: Resource, token: Token) -> Lease {
        let expires_at = WallTime::from_millis(self.expires_at);
        let acquired_at = self.acquired_at.map_or(expires_at, WallTime::from_millis);
        Lease {
            resource,
            owner: self.owner.clone(),
            token,
            ttl: self.ttl(),
            acquired_at,
            expires_at,
        }
    }
}

impl Claim {
    /// `None` only for a revision that no etcd gives.
    pub(super) fn of(kv: &KeyValue) -> Option<Claim> {
        let value: Option<Value> = serde_json::from_slice(kv.value()).ok();
        let text = std::str::from_utf8(kv.value()).ok();
        Some(Claim {
            key: kv.key().to_vec(),
            token: Token::from_i64(kv.create_revision())?,
            lease_id: kv.lease(),
            foreign: if value.is_none() { text.and_then(|t| Owner::new(t).ok()) } else { None },
            value,
        })
    }

    /// Whether this gateway or another one wrote it for this owner.
    pub(super) fn is_of(&self, owner: &Owner) -> bool {
        self.value.as_ref().is_some_and(|value| value.owner == *owner)
    }

    /// Holds as long as the claim stands.
    pub(super) fn stands(&self) -> Compare {
        Compare::create_revision(self.key.clone(), CompareOp::Equal, self.token.as_i64())
    }

    /// The lease as far as the key tells. How long another program's lease lives only etcd knows:
    /// its times are `now`.
    pub(super) fn lease(&self, resource: &Resource, now: WallTime) -> Lease {
        let Some(value) = &self.value else {
            return Lease {
                resource: resource.clone(),
                owner: self.foreign_owner(),
                token: self.token,
                ttl: Duration::ZERO,
                acquired_at: now,
                expires_at: now,
            };
        };
        let mut lease = value.lease(resource.clone(), self.token);
        // It is there, so it has not expired: etcd lets leases live a little longer after a change
        // of its leader.
        lease.expires_at = lease.expires_at.max(now);
        lease
    }

    fn foreign_owner(&self) -> Owner {
        if let Some(owner) = &self.foreign {
            return owner.clone();
        }
        let key = String::from_utf8_lossy(&self.key).replace(char::is_control, "?");
        let end = key.len().saturating_sub(MOST_OWNER_BYTES);
        let start = (end..=key.len()).find(|at| key.is_char_boundary(*at)).unwrap_or(0);
        // The end tells more than the beginning, which is the prefix.
        Owner::new(&key[start..]).unwrap_or_else(|_| unnamed())
    }
}

/// For a key without a name, which etcd does not have.
fn unnamed() -> Owner {
    Owner::new("?").expect("one character is a name")
}
