//! Marks and grants in PostgreSQL. What is asked at the same time shares a call and a commit.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::wire::{
    Asked, AskedTogether, ElsewhereAnswer, FenceColumns, LeftAnswer, LoadedColumns, Named,
    RaiseAnswer,
};
use super::{Postgres, Server};
use crate::batch::Batcher;
use crate::clock::WallTime;
use crate::fence::{Mark, OverGrant, Rank, Resource};
use crate::metrics::Operation;
use crate::store::{
    BATCH_CALLS, FenceRow, FenceState, FenceStore, InstanceId, Left, Raise, Raised, StoreError,
};

/// While the server works on some raises, the next ones are made ready here and what came of others is made use of.
const RAISE_WAYS: usize = 2;

/// The [`FenceStore`] of one PostgreSQL database.
#[derive(Debug)]
pub struct PostgresFences {
    pub(super) store: Postgres,
    loads: Batcher<Resource, FenceState, StoreError>,
    raises: Batcher<(InstanceId, Raise), Raised, StoreError>,
    elsewhere: Batcher<(InstanceId, Resource, Rank), bool, StoreError>,
    give_backs: Batcher<Over, (), StoreError>,
}

/// A grant that is over, and the run that has it.
type Over = (InstanceId, Resource, OverGrant);

impl PostgresFences {
    /// Keeps marks and grants in `store`.
    #[must_use]
    pub fn new(store: &Postgres, tasks: &TaskTracker) -> PostgresFences {
        let [for_loads, for_raises, for_elsewhere, for_give_backs] =
            [store.clone(), store.clone(), store.clone(), store.clone()];
        PostgresFences {
            store: store.clone(),
            loads: Batcher::new(tasks, BATCH_CALLS, 1, move |resources| {
                let store = for_loads.clone();
                Box::pin(async move { store.load_all(resources).await })
            }),
            raises: Batcher::new(tasks, BATCH_CALLS, RAISE_WAYS, move |raises| {
                let store = for_raises.clone();
                Box::pin(async move { store.raise_all(raises).await })
            }),
            elsewhere: Batcher::new(tasks, BATCH_CALLS, 1, move |asked| {
                let store = for_elsewhere.clone();
                Box::pin(async move { store.are_elsewhere(asked).await })
            }),
            give_backs: Batcher::new(tasks, BATCH_CALLS, 1, move |over| {
                let store = for_give_backs.clone();
                Box::pin(async move { store.give_back_each(over).await })
            }),
        }
    }
}

#[async_trait]
impl FenceStore for PostgresFences {
    /// Grants of others are not among it: whoever raises is told of them.
    async fn load(&self, resource: Resource) -> Result<FenceState, StoreError> {
        self.loads.call(resource).await
    }

    async fn raise(&self, instance: InstanceId, raise: Raise) -> Result<Raised, StoreError> {
        self.raises.call((instance, raise)).await
    }

    async fn is_granted_elsewhere(
        &self,
        instance: InstanceId,
        resource: Resource,
        rank: Rank,
    ) -> Result<bool, StoreError> {
        self.elsewhere.call((instance, resource, rank)).await
    }

    async fn give_back(
        &self,
        instance: InstanceId,
        grants: Vec<(Resource, OverGrant)>,
    ) -> Result<(), StoreError> {
        // Those that others wait for come one by one, and thousands at once: with a connection for each they
        // would hold up the renewals of this instance's own lease.
        if let [(resource, over)] = &*grants {
            return self.give_backs.call((instance, resource.clone(), *over)).await;
        }
        self.store.give_back(instance, &grants).await
    }

    async fn give_back_all_but(
        &self,
        instance: InstanceId,
        keep: Vec<(Resource, Rank)>,
    ) -> Result<(), StoreError> {
        let keep: Vec<_> =
            keep.iter().map(|(resource, rank)| Named::rank(resource, *rank)).collect();
        self.store.give_back_all_but(instance, &keep).await
    }

    async fn left(&self, limit: u32) -> Result<Vec<Left>, StoreError> {
        let LeftAnswer { left, .. } = self.store.left(limit).await?;
        let now = self.store.0.clock.now();
        left.into_iter()
            .map(|columns| {
                let (resource, grant, instance) = columns.read()?;
                // One that was not seen yet is counted from now, as its burial will be.
                let gone_since = self.store.others().fenced_since(instance).unwrap_or(now);
                Ok(Left { resource, grant, gone_since: Some(gone_since) })
            })
            .collect()
    }

    async fn count_left(&self) -> Result<u64, StoreError> {
        Ok(self.store.left(0).await?.count)
    }

    /// The keeper of the instance's lease does that, run by run.
    async fn forget_left(&self, _: Duration) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn list(&self, after: Option<Resource>, limit: u32) -> Result<Vec<FenceRow>, StoreError> {
        let after = after.as_ref().map_or("", Resource::as_str);
        let asked = json!({"after": after, "limit": limit});
        let rows: Vec<FenceColumns> =
            self.store.call(Operation::List, "fencegate_list", &asked).await?;
        rows.into_iter().map(FenceRow::try_from).collect()
    }

    async fn show(&self, resource: Resource) -> Result<Option<FenceRow>, StoreError> {
        let asked = json!({"resource": resource});
        let rows: Vec<FenceColumns> =
            self.store.call(Operation::List, "fencegate_show", &asked).await?;
        rows.into_iter().next().map(FenceRow::try_from).transpose()
    }
}

impl Postgres {
    async fn give_back(
        &self,
        instance: InstanceId,
        grants: &[(Resource, OverGrant)],
    ) -> Result<(), StoreError> {
        if grants.is_empty() {
            return Ok(());
        }
        let over: Vec<_> =
            grants.iter().map(|(resource, over)| Named::over(resource, *over)).collect();
        let asked = json!({"instance": instance.as_i64(), "grants": over});
        self.call(Operation::GiveBack, "fencegate_give_back", &asked).await
    }

    async fn give_back_each(&self, over: Vec<Over>) -> Result<Vec<()>, StoreError> {
        let answers = vec![(); over.len()];
        let mut by_run: BTreeMap<InstanceId, Vec<(Resource, OverGrant)>> = BTreeMap::new();
        for (instance, resource, over) in over {
            by_run.entry(instance).or_default().push((resource, over));
        }
        for (instance, grants) in by_run {
            self.give_back(instance, &grants).await?;
        }
        Ok(answers)
    }

    /// Page by page, as there may be more of them than one call can delete.
    pub(super) async fn give_back_all_but(
        &self,
        instance: InstanceId,
        keep: &[Named<'_>],
    ) -> Result<(), StoreError> {
        let asked = json!({"instance": instance.as_i64(), "keep": keep});
        loop {
            let deleted: u64 =
                self.call(Operation::GiveBack, "fencegate_give_back_all_but", &asked).await?;
            if deleted == 0 {
                return Ok(());
            }
        }
    }

    async fn left(&self, limit: u32) -> Result<LeftAnswer, StoreError> {
        self.call(Operation::List, "fencegate_left", &json!({"limit": limit})).await
    }

    async fn load_all(&self, resources: Vec<Resource>) -> Result<Vec<FenceState>, StoreError> {
        let rows: Vec<LoadedColumns> = self
            .call(Operation::Load, "fencegate_load_with_times", &json!({"resources": resources}))
            .await?;
        let mut marks: HashMap<&str, (Mark, WallTime)> = HashMap::new();
        for row in &rows {
            marks.insert(&row.0, (row.mark()?, row.raised_at()));
        }
        let state = |resource: &Resource| FenceState {
            mark: marks.get(resource.as_str()).map(|(mark, _)| *mark),
            raised_at: marks.get(resource.as_str()).map(|(_, raised_at)| *raised_at),
            left: Vec::new(),
        };
        Ok(resources.iter().map(state).collect())
    }

    pub(super) async fn raise_all(
        &self,
        raises: Vec<(InstanceId, Raise)>,
    ) -> Result<Vec<Raised>, StoreError> {
        // At the change from one run to the next both may be here. Then none is answered.
        let Some(instance) = raises.iter().map(|(instance, _)| *instance).next_back() else {
            return Ok(Vec::new());
        };
        if raises.iter().any(|(other, _)| *other != instance) {
            return Err(is_over());
        }
        let each = raises.iter().enumerate().map(|(nth, (_, raise))| Asked::new(nth, raise));
        let asked = AskedTogether { instance: instance.as_i64(), raises: each.collect() };
        let answer: RaiseAnswer =
            self.call_known(Operation::Raise, "fencegate_raise", &asked).await?;
        if !answer.member {
            self.0.doubtful.notify_one();
            return Err(is_over());
        }
        complete(answer.raised.len(), raises.len())?;
        answer.raised.into_iter().map(Raised::try_from).collect()
    }

    async fn are_elsewhere(
        &self,
        asked: Vec<(InstanceId, Resource, Rank)>,
    ) -> Result<Vec<bool>, StoreError> {
        let Some(instance) = asked.iter().map(|(instance, ..)| *instance).next_back() else {
            return Ok(Vec::new());
        };
        if asked.iter().any(|(other, ..)| *other != instance) {
            return Err(is_over());
        }
        let rows: Vec<Value> = asked
            .iter()
            .enumerate()
            .map(|(nth, (_, resource, Rank { epoch, token }))| {
                json!({"nth": nth, "resource": resource, "epoch": epoch, "token": token.as_i64()})
            })
            .collect();
        let asked = json!({"instance": instance.as_i64(), "asked": rows});
        let answer: ElsewhereAnswer =
            self.call_known(Operation::Elsewhere, "fencegate_elsewhere", &asked).await?;
        complete(answer.elsewhere.len(), rows.len())?;
        Ok(answer.elsewhere)
    }

    /// Calls until the answer comes from a server that was told what this instance remembers, once more at
    /// the most.
    async fn call_known<A: Serialize, T: DeserializeOwned + AsRef<Server>>(
        &self,
        operation: Operation,
        function: &'static str,
        asked: &A,
    ) -> Result<T, StoreError> {
        let answer: T = self.call(operation, function, asked).await?;
        if self.is_known(answer.as_ref()) {
            return Ok(answer);
        }
        if self.until_known(answer.as_ref()).await {
            let again: T = self.call(operation, function, asked).await?;
            if self.is_known(again.as_ref()) {
                return Ok(again);
            }
        }
        let why = "the server is another one than before, or was restarted, and does not know yet \
                   what this instance remembers";
        Err(StoreError(why.into()))
    }
}

/// Answers are paired with what was asked by their places.
fn complete(answers: usize, asked: usize) -> Result<(), StoreError> {
    if answers == asked {
        return Ok(());
    }
    Err(StoreError(format!("{asked} were asked about, {answers} were answered").into()))
}

fn is_over() -> StoreError {
    StoreError("this instance was taken for dead, or starts over".into())
}
