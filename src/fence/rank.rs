//! What orders tokens: first the epoch, then the number.

use super::Token;

/// One history of the coordinator, counted from 1. A coordinator that was wiped or restored hands
/// out numbers again that it handed out before; an operator's word begins the next epoch, whose
/// tokens are above all earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct Epoch(u32);

/// A token with the epoch in which it was confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// The coordinator's history.
    pub epoch: Epoch,
    /// The token of that history.
    pub token: Token,
}

impl Epoch {
    /// The one that every store begins with.
    pub const FIRST: Epoch = Epoch(1);

    /// From a database column; `None` below 1 or above `u32::MAX`.
    #[must_use]
    pub fn from_i64(number: i64) -> Option<Epoch> {
        u32::try_from(number).ok().filter(|number| *number > 0).map(Epoch)
    }

    /// The number, from 1.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

impl Rank {
    /// A token of the first epoch.
    #[must_use]
    pub const fn first(token: Token) -> Rank {
        Rank { epoch: Epoch::FIRST, token }
    }
}

impl std::fmt::Display for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
