//! What every store has to do. [`tests!`] makes one test of each rule; `sole` and `shared` have the rules of
//! stores with one instance and with several.

pub(super) mod shared;
pub(super) mod sole;

use std::ops::Deref;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::{FenceRow, FenceStore, InstanceId, Raise, Raised, StoreError};
use crate::fence::{Epoch, Grant, Mark, OverGrant, Owner, Rank, Resource, Token};

const SETTLE: Duration = Duration::from_secs(3);
const LONGER: Duration = Duration::from_secs(5);

/// A store, for as long as whoever asks likes.
pub(super) type Fences = dyn FenceStore;

/// One run after the other on what is kept.
#[async_trait(?Send)]
pub(super) trait Subject {
    /// The store of the present run.
    fn fences(&self) -> &Fences;

    /// The present run.
    fn instance(&self) -> InstanceId;

    /// Ends the run without giving anything back, so that it counts as gone, and begins the next.
    async fn next_run(&mut self);

    fn store(&self) -> Run<'_> {
        Run { fences: self.fences(), instance: self.instance() }
    }
}

/// A store as one run sees it.
pub(super) struct Run<'a> {
    pub(super) fences: &'a Fences,
    pub(super) instance: InstanceId,
}

impl Run<'_> {
    async fn raise(&self, raise: Raise) -> Result<Raised, StoreError> {
        self.fences.raise(self.instance, raise).await
    }

    async fn give_back(&self, grants: Vec<(Resource, OverGrant)>) -> Result<(), StoreError> {
        self.fences.give_back(self.instance, grants).await
    }

    async fn give_back_all_but(&self, keep: Vec<(Resource, Rank)>) -> Result<(), StoreError> {
        self.fences.give_back_all_but(self.instance, keep).await
    }
}

impl Deref for Run<'_> {
    type Target = Fences;

    fn deref(&self) -> &Fences {
        self.fences
    }
}

macro_rules! tests {
    ($subject:expr) => {
        $crate::store::contract::tests!($subject;
            a_resource_that_nobody_wrote_to_has_nothing,
            a_raise_and_its_grant_are_there_together,
            a_stale_raise_answers_the_higher_mark_and_grants_nothing,
            a_confirmed_mark_is_above_an_unconfirmed_one_and_does_not_go_back,
            a_raise_may_be_repeated_and_keeps_the_longest_settle_time,
            raises_of_one_resource_that_arrive_together_end_at_the_highest,
            raises_of_many_resources_that_arrive_together_do_not_mix,
            the_highest_token_is_kept,
            what_was_given_back_is_not_left,
            a_clean_end_leaves_what_it_was_told_to_keep,
            grants_of_this_run_are_not_left_until_the_next,
            fences_are_listed_in_pages,
            a_fence_is_shown_with_its_holder,
            marks_stay_whatever_happens_to_grants,
            a_later_epoch_is_above_all_tokens_of_an_earlier_one,
        );
    };
    ($subject:expr; $($rule:ident,)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::store::contract::$rule(&mut $subject.await).await;
            }
        )*
    };
}
pub(super) use shared::Shared;
pub(super) use shared::tests as shared_tests;
pub(super) use sole::tests as sole_tests;
pub(super) use tests;

pub(super) async fn a_resource_that_nobody_wrote_to_has_nothing(subject: &mut impl Subject) {
    let store = &subject.store();
    assert_eq!(mark(store, "r").await, None);
    assert_eq!(left(store, "r").await, []);
    assert!(store.show(resource("r")).await.unwrap().is_none());
    assert!(store.list(None, 10).await.unwrap().is_empty());
    assert!(store.left(10).await.unwrap().is_empty());
    assert!(!store.forget_left(SETTLE).await.unwrap());
}

pub(super) async fn a_raise_and_its_grant_are_there_together(subject: &mut impl Subject) {
    let store = &subject.store();
    assert_eq!(raised(store, raise("r", 5)).await, confirmed(5));
    let without = Raise { grant: None, ..raise("s", 6) };
    assert_eq!(raised(store, without).await, confirmed(6));

    subject.next_run().await;

    let store = &subject.store();
    assert_eq!(mark(store, "r").await, Some(confirmed(5)));
    assert_eq!(left(store, "r").await, [(5, SETTLE)]);
    assert_eq!(mark(store, "s").await, Some(confirmed(6)));
    assert_eq!(left(store, "s").await, [], "none was asked for");
}

pub(super) async fn a_stale_raise_answers_the_higher_mark_and_grants_nothing(
    subject: &mut impl Subject,
) {
    let store = &subject.store();
    store.raise(raise("r", 5)).await.unwrap();
    assert_eq!(raised(store, raise("r", 4)).await, confirmed(5));
    assert_eq!(mark(store, "r").await, Some(confirmed(5)));

    subject.next_run().await;

    assert_eq!(left(&subject.store(), "r").await, [(5, SETTLE)]);
}

pub(super) async fn a_confirmed_mark_is_above_an_unconfirmed_one_and_does_not_go_back(
    subject: &mut impl Subject,
) {
    let store = &subject.store();
    let unconfirmed = Raise { confirmed: false, grant: None, ..raise("r", 5) };
    assert_eq!(raised(store, unconfirmed.clone()).await, operators(5));
    assert_eq!(mark(store, "r").await, Some(operators(5)));
    assert_eq!(raised(store, raise("r", 4)).await, operators(5), "it refuses older ones");
    assert_eq!(raised(store, raise("r", 5)).await, confirmed(5));
    assert_eq!(raised(store, unconfirmed).await, confirmed(5));
    assert_eq!(mark(store, "r").await, Some(confirmed(5)));
    let higher = Raise { confirmed: false, grant: None, ..raise("r", 6) };
    assert_eq!(raised(store, higher).await, operators(6));
}

pub(super) async fn a_raise_may_be_repeated_and_keeps_the_longest_settle_time(
    subject: &mut impl Subject,
) {
    let store = &subject.store();
    for settle in [SETTLE, LONGER, SETTLE] {
        let again = Raise { grant: grant(settle), ..raise("r", 5) };
        assert_eq!(raised(store, again).await, confirmed(5));
    }
    store.raise(Raise { grant: None, ..raise("r", 5) }).await.unwrap();

    subject.next_run().await;

    assert_eq!(left(&subject.store(), "r").await, [(5, LONGER)]);
}

pub(super) async fn raises_of_one_resource_that_arrive_together_end_at_the_highest(
    subject: &mut impl Subject,
) {
    let store = &subject.store();
    let numbers = [3, 9, 5, 9, 1, 7];
    let marks = join_all(numbers.map(|number| store.raise(raise("r", number)))).await;
    let mut granted = Vec::new();
    for (number, mark) in numbers.into_iter().zip(marks) {
        let mark = mark.unwrap().mark;
        assert!(mark >= confirmed(number));
        if mark == confirmed(number) {
            granted.push((number, SETTLE));
        }
    }
    granted.sort_unstable();
    granted.dedup();
    assert_eq!(mark(store, "r").await, Some(confirmed(9)));

    subject.next_run().await;

    assert_eq!(granted.last(), Some(&(9, SETTLE)));
    assert_eq!(
        left(&subject.store(), "r").await,
        granted,
        "who was told of a higher mark has none"
    );
}

pub(super) async fn raises_of_many_resources_that_arrive_together_do_not_mix(
    subject: &mut impl Subject,
) {
    let store = &subject.store();
    let numbers = 1..=200;
    let name = |number: u64| format!("r{number}");
    let marks =
        join_all(numbers.clone().map(|number| store.raise(raise(&name(number), number)))).await;
    for (number, mark) in numbers.clone().zip(marks) {
        assert_eq!(mark.unwrap().mark, confirmed(number));
    }

    subject.next_run().await;

    let store = &subject.store();
    let states = join_all(numbers.clone().map(|number| store.load(resource(&name(number))))).await;
    for (number, state) in numbers.clone().zip(states) {
        assert_eq!(state.unwrap().mark, Some(confirmed(number)));
    }
    let expected: Vec<_> = numbers.map(|number| (name(number), number)).collect();
    let mut left = all_left(store).await;
    left.sort_by_key(|(_, number)| *number);
    assert_eq!(left, expected);
}

pub(super) async fn the_highest_token_is_kept(subject: &mut impl Subject) {
    let highest = i64::MAX.unsigned_abs();
    let store = &subject.store();
    assert_eq!(raised(store, raise("r", highest)).await, confirmed(highest));
    assert_eq!(raised(store, raise("r", highest - 1)).await, confirmed(highest));

    subject.next_run().await;

    let store = &subject.store();
    assert_eq!(mark(store, "r").await, Some(confirmed(highest)));
    assert_eq!(left(store, "r").await, [(highest, SETTLE)]);
}

pub(super) async fn what_was_given_back_is_not_left(subject: &mut impl Subject) {
    let store = &subject.store();
    store.raise(raise("r", 5)).await.unwrap();
    store.raise(raise("r", 6)).await.unwrap();
    store.raise(raise("s", 5)).await.unwrap();
    let over = vec![(resource("r"), over(5)), (resource("nobody"), over(5))];
    store.give_back(over.clone()).await.unwrap();
    store.give_back(over).await.unwrap();
    store.give_back(Vec::new()).await.unwrap();

    subject.next_run().await;

    let store = &subject.store();
    assert_eq!(left(store, "r").await, [(6, SETTLE)]);
    assert_eq!(left(store, "s").await, [(5, SETTLE)]);
}

pub(super) async fn a_clean_end_leaves_what_it_was_told_to_keep(subject: &mut impl Subject) {
    let store = &subject.store();
    store.raise(raise("earlier", 4)).await.unwrap();
    subject.next_run().await;
    let store = &subject.store();
    for (name, number) in [("r", 5), ("r", 6), ("s", 5)] {
        store.raise(raise(name, number)).await.unwrap();
    }
    let keep = vec![(resource("r"), rank(5)), (resource("nobody"), rank(5))];
    store.give_back_all_but(keep).await.unwrap();

    subject.next_run().await;

    let left = all_left(&subject.store()).await;
    assert_eq!(left, [("earlier".into(), 4), ("r".into(), 5)], "earlier runs are not its own");
}

pub(super) async fn grants_of_this_run_are_not_left_until_the_next(subject: &mut impl Subject) {
    let store = &subject.store();
    store.raise(raise("r", 5)).await.unwrap();
    assert_eq!(left(store, "r").await, []);
    assert_eq!(all_left(store).await, []);
    assert!(!store.forget_left(LONGER).await.unwrap());

    subject.next_run().await;

    let store = &subject.store();
    assert_eq!(left(store, "r").await, [(5, SETTLE)]);
    store.raise(raise("s", 1)).await.unwrap();
    assert_eq!(all_left(store).await, [("r".into(), 5)]);
    assert_eq!(store.left(0).await.unwrap().len(), 0, "at most what was asked for");
}

pub(super) async fn fences_are_listed_in_pages(subject: &mut impl Subject) {
    let store = &subject.store();
    for name in ["b", "a/2", "é", "a/1", "B"] {
        store.raise(raise(name, 5)).await.unwrap();
    }
    let mut names = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(after, 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.resource.clone());
        names.extend(page.iter().map(|row| row.resource.to_string()));
    }
    assert_eq!(names, ["B", "a/1", "a/2", "b", "é"], "in the order of their bytes");
}

pub(super) async fn a_fence_is_shown_with_its_holder(subject: &mut impl Subject) {
    let store = &subject.store();
    let owner = Owner::new("worker \"7\"").unwrap();
    store.raise(Raise { owner: Some(owner.clone()), ..raise("r", 5) }).await.unwrap();
    store.raise(Raise { owner: None, ..raise("r", 4) }).await.unwrap();
    let row = shown(store, "r").await;
    assert_eq!((row.highest_token, row.confirmed), (token(5), true));
    assert_eq!(row.owner.as_deref(), Some(owner.as_str()));

    store.raise(Raise { confirmed: false, grant: None, ..raise("r", 6) }).await.unwrap();

    let higher = shown(store, "r").await;
    assert_eq!((higher.highest_token, higher.confirmed, higher.owner), (token(6), false, None));
    assert!(higher.updated_at >= row.updated_at);
}

pub(super) async fn marks_stay_whatever_happens_to_grants(subject: &mut impl Subject) {
    let store = &subject.store();
    store.raise(raise("r", 5)).await.unwrap();
    store.give_back(vec![(resource("r"), over(5))]).await.unwrap();
    assert_eq!(mark(store, "r").await, Some(confirmed(5)));
    store.raise(raise("r", 6)).await.unwrap();
    store.give_back_all_but(Vec::new()).await.unwrap();
    assert_eq!(mark(store, "r").await, Some(confirmed(6)));
    store.raise(raise("r", 7)).await.unwrap();

    subject.next_run().await;

    let store = &subject.store();
    assert!(!store.forget_left(LONGER).await.unwrap());
    assert_eq!(mark(store, "r").await, Some(confirmed(7)));
    assert_eq!(raised(store, raise("r", 6)).await, confirmed(7));
}

pub(super) async fn a_later_epoch_is_above_all_tokens_of_an_earlier_one(
    subject: &mut impl Subject,
) {
    let store = &subject.store();
    store.raise(raise("r", 9)).await.unwrap();
    let next = Rank { epoch: Epoch::FIRST.next(), token: token(3) };
    let later = Raise { rank: next, ..raise("r", 3) };
    assert_eq!(raised(store, later.clone()).await, Mark { rank: next, confirmed: true });
    assert_eq!(raised(store, raise("r", 10)).await, Mark { rank: next, confirmed: true });
    store.give_back(vec![(resource("r"), over(9))]).await.unwrap();

    subject.next_run().await;

    let store = &subject.store();
    assert_eq!(mark(store, "r").await, Some(Mark { rank: next, confirmed: true }));
    assert_eq!(left(store, "r").await, [(3, SETTLE)]);
    let row = shown(store, "r").await;
    assert_eq!((row.epoch, row.highest_token), (next.epoch, next.token));
}

fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

fn token(number: u64) -> Token {
    Token::from_i64(number.cast_signed()).unwrap()
}

fn rank(number: u64) -> Rank {
    Rank::first(token(number))
}

fn grant(settle: Duration) -> Option<Grant> {
    Some(Grant { settle, number: 1 })
}

fn over(number: u64) -> OverGrant {
    OverGrant { rank: rank(number), number: Some(1) }
}

fn confirmed(number: u64) -> Mark {
    Mark { rank: rank(number), confirmed: true }
}

fn operators(number: u64) -> Mark {
    Mark { rank: rank(number), confirmed: false }
}

/// A raise to a confirmed token, with a grant.
fn raise(name: &str, number: u64) -> Raise {
    Raise {
        resource: resource(name),
        rank: rank(number),
        confirmed: true,
        owner: None,
        grant: grant(SETTLE),
        spare: None,
        drain: None,
    }
}

/// The mark that stands after a raise without other instances.
async fn raised(store: &Run<'_>, raise: Raise) -> Mark {
    let Raised { mark, elsewhere, .. } = store.raise(raise).await.unwrap();
    assert!(!elsewhere);
    mark
}

async fn mark(store: &Run<'_>, name: &str) -> Option<Mark> {
    store.load(resource(name)).await.unwrap().mark
}

/// What earlier runs left of a resource, in the order of the tokens.
async fn left(store: &Run<'_>, name: &str) -> Vec<(u64, Duration)> {
    let left = store.left(1000).await.unwrap();
    let mut left: Vec<_> = left
        .into_iter()
        .filter(|left| left.resource.as_str() == name)
        .map(|left| (left.grant.rank.token.get(), left.grant.settle))
        .collect();
    left.sort_unstable();
    left
}

async fn all_left(store: &Run<'_>) -> Vec<(String, u64)> {
    let left = store.left(1000).await.unwrap();
    assert_eq!(store.count_left().await.unwrap(), left.len() as u64);
    let mut left: Vec<_> = left
        .into_iter()
        .map(|left| (left.resource.to_string(), left.grant.rank.token.get()))
        .collect();
    left.sort_unstable();
    left
}

async fn shown(store: &Run<'_>, name: &str) -> FenceRow {
    store.show(resource(name)).await.unwrap().expect("it was raised")
}
