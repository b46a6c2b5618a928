//! The fence store: where marks and grants are kept so that no crash loses them.
//!
//! [`FenceStore`] is the durability contract. An implementation may answer `Ok` only for what
//! is on disk (fsynced). An `Err` means that the caller does not know whether it happened; every
//! operation is idempotent, so that it may be tried again.

#[cfg(test)]
mod contract;
mod history;
#[cfg(test)]
mod history_contract;
mod instance;
mod postgres;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::{Boottime, WallTime};
use crate::fence::{Epoch, Grant, LeftGrant, Mark, OverGrant, Owner, Rank, Resource, Token};

pub use history::{History, HistoryStore};
pub use instance::{InstanceId, InstanceLease, Member, Remembered, Revocation};
pub use postgres::{
    ConnectError, InstanceMetrics, Keeper, Kept, Migrate, MigrateOutcome, Postgres, PostgresFences,
    PostgresSettings, PostgresUrl, migrate,
};
pub(crate) use sqlite::BATCH_CALLS;
pub use sqlite::{Database, OpenError, SqliteFences};

/// The store did not confirm. What was asked may or may not be on disk.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the fence store did not confirm: {0}")]
pub struct StoreError(pub Arc<str>);

/// What the store knows of one resource.
#[derive(Clone, Debug, Default)]
pub struct FenceState {
    /// The mark, if a token was ever accepted.
    pub mark: Option<Mark>,
    /// When the mark was raised, for people.
    pub raised_at: Option<WallTime>,
    /// Grants that instances which are gone did not give back.
    pub left: Vec<LeftGrant>,
}

/// One raise.
#[derive(Clone, Debug)]
pub struct Raise {
    /// Whose fence.
    pub resource: Resource,
    /// The token that the mark shall not be below.
    pub rank: Rank,
    /// Whether the coordinator named this token as the holder's. A mark that an operator set is
    /// not confirmed, and its token still has to be when it comes.
    pub confirmed: bool,
    /// The holder, where the coordinator named one.
    pub owner: Option<Owner>,
    /// Records, with the raise, this instance's right to admit writes of the token, if that is not below
    /// the mark. A record that is there already keeps the longer settle time and gets the higher
    /// number.
    pub grant: Option<Grant>,
    /// A grant of this instance that is over. Instead of recording the new one beside it, the store may
    /// rewrite its record.
    pub spare: Option<OverGrant>,
    /// How long other instances may let older writes finish before they cut them.
    pub drain: Option<Duration>,
}

/// The end of a raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The mark that now stands.
    pub mark: Mark,
    /// Whether other instances have grants below it. They have been told to give them back.
    pub elsewhere: bool,
    /// Whether the record of [`Raise::spare`] became the new grant's. If not it has to be given back.
    pub spent: bool,
}

/// A grant of a run that is gone.
#[derive(Clone, Debug)]
pub struct Left {
    /// Whose fence.
    pub resource: Resource,
    /// The grant.
    pub grant: LeftGrant,
    /// A moment from which its settle time can be counted, where the store knows one that is not the start of
    /// the present run.
    pub gone_since: Option<Boottime>,
}

/// A row of the fence table, for people.
#[derive(Clone, Debug, serde::Serialize)]
pub struct FenceRow {
    /// Whose fence.
    pub resource: Resource,
    /// The high-water mark.
    pub highest_token: Token,
    /// The coordinator's history that the token belongs to.
    pub epoch: Epoch,
    /// Whether the coordinator named the token as a holder's.
    pub confirmed: bool,
    /// The holder that the coordinator named when the mark was raised.
    pub owner: Option<String>,
    /// When the mark was raised.
    pub updated_at: WallTime,
}

/// Keeps marks and grants.
#[async_trait]
pub trait FenceStore: Send + Sync + 'static {
    /// Reads what is known of a resource.
    async fn load(&self, resource: Resource) -> Result<FenceState, StoreError>;

    /// Raises the mark to at least `raise.rank` and answers the mark that now stands, which is
    /// higher if a newer token was there already. From then on no instance gets a grant below it. On
    /// disk before it answers. The grant is `instance`'s.
    async fn raise(&self, instance: InstanceId, raise: Raise) -> Result<Raised, StoreError>;

    /// Whether others than `instance` have grants below `rank`, which a raise has reached. Once this answers
    /// `false` it stays so.
    async fn is_granted_elsewhere(
        &self,
        instance: InstanceId,
        resource: Resource,
        rank: Rank,
    ) -> Result<bool, StoreError>;

    /// Deletes grants of `instance` whose writes are all over. A record with another number stays.
    async fn give_back(
        &self,
        instance: InstanceId,
        grants: Vec<(Resource, OverGrant)>,
    ) -> Result<(), StoreError>;

    /// Deletes every grant of `instance` but those in `keep`, at a clean shutdown.
    async fn give_back_all_but(
        &self,
        instance: InstanceId,
        keep: Vec<(Resource, Rank)>,
    ) -> Result<(), StoreError>;

    /// Grants that instances which are gone did not give back, at most `limit`.
    async fn left(&self, limit: u32) -> Result<Vec<Left>, StoreError>;

    /// How many of those there are.
    async fn count_left(&self) -> Result<u64, StoreError>;

    /// Deletes grants of instances that are gone whose settle time is at most `settle`, a bounded
    /// number at once, and answers whether any grant of a gone instance is left.
    async fn forget_left(&self, settle: Duration) -> Result<bool, StoreError>;

    /// Fences in the order of their names, after `after`, at most `limit`.
    async fn list(&self, after: Option<Resource>, limit: u32) -> Result<Vec<FenceRow>, StoreError>;

    /// One fence.
    async fn show(&self, resource: Resource) -> Result<Option<FenceRow>, StoreError>;
}
