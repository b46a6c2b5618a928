//! Rules of a store that several instances share: who is told of whose grants, and when they are gone.

use std::time::Duration;

use futures_util::future::join;

use super::{Run, SETTLE, Subject, confirmed, left, over, raise, rank, resource};
use crate::fence::{Grant, OverGrant};
use crate::store::{InstanceId, Raise, Raised};

/// A subject that can have a second run beside the present one.
pub(in crate::store) trait Shared: Subject {
    /// A second run that lives beside the present one until the end of the test.
    fn other(&self) -> Run<'_>;

    /// Grants of a run that others wait for: resource, token, drain.
    async fn revoked(&self, of: InstanceId) -> Vec<(String, u64, Option<Duration>)>;
}

macro_rules! tests {
    ($subject:expr) => {
        $crate::store::contract::shared_tests!($subject;
            whoever_raises_is_told_of_older_grants_of_others_until_they_are_given_back,
            the_same_token_goes_on_beside_another_runs_grant,
            a_stale_raise_revokes_nothing,
            the_shortest_drain_counts,
            a_run_does_not_give_back_anothers_grant,
            a_late_request_to_delete_a_grant_finds_no_other,
            a_run_that_is_gone_raises_nothing,
            of_a_grant_and_a_newer_raise_at_once_one_knows_of_the_other,
        );
    };
    ($subject:expr; $($rule:ident,)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::store::contract::shared::$rule(&mut $subject.await).await;
            }
        )*
    };
}
pub(in crate::store) use tests;

const RAISED: fn(u64, bool) -> Raised =
    |number, elsewhere| Raised { mark: confirmed(number), elsewhere, spent: false };

pub(in crate::store) async fn whoever_raises_is_told_of_older_grants_of_others_until_they_are_given_back(
    subject: &mut impl Shared,
) {
    let (one, two) = (subject.store(), subject.other());
    assert_eq!(one.raise(raise("r", 5)).await.unwrap(), RAISED(5, false));
    assert_eq!(two.raise(raise("r", 6)).await.unwrap(), RAISED(6, true));
    assert_eq!(one.raise(raise("r", 6)).await.unwrap(), RAISED(6, false), "its own is its own");
    let is_elsewhere = async |number| {
        two.is_granted_elsewhere(two.instance, resource("r"), rank(number)).await.unwrap()
    };
    assert!(is_elsewhere(6).await);
    assert!(!is_elsewhere(5).await);
    assert_eq!(subject.revoked(one.instance).await, [("r".to_owned(), 5, None)]);
    assert_eq!(subject.revoked(two.instance).await, []);

    one.give_back(vec![(resource("r"), over(5))]).await.unwrap();

    assert!(!is_elsewhere(6).await);
    assert_eq!(subject.revoked(one.instance).await, []);
    assert_eq!(two.raise(raise("r", 6)).await.unwrap(), RAISED(6, false));
}

pub(in crate::store) async fn the_same_token_goes_on_beside_another_runs_grant(
    subject: &mut impl Shared,
) {
    let (one, two) = (subject.store(), subject.other());
    assert_eq!(one.raise(raise("r", 5)).await.unwrap(), RAISED(5, false));
    assert_eq!(two.raise(raise("r", 5)).await.unwrap(), RAISED(5, false));
    one.give_back(vec![(resource("r"), over(5))]).await.unwrap();
    assert_eq!(one.raise(raise("r", 6)).await.unwrap(), RAISED(6, true), "the other one's stayed");
}

pub(in crate::store) async fn a_stale_raise_revokes_nothing(subject: &mut impl Shared) {
    let (one, two) = (subject.store(), subject.other());
    one.raise(raise("r", 5)).await.unwrap();
    assert_eq!(two.raise(raise("r", 4)).await.unwrap(), RAISED(5, false));
    assert_eq!(subject.revoked(one.instance).await, []);
}

pub(in crate::store) async fn the_shortest_drain_counts(subject: &mut impl Shared) {
    let (one, two) = (subject.store(), subject.other());
    one.raise(raise("r", 5)).await.unwrap();
    for (asked, expected) in [(None, None), (Some(9), Some(9)), (Some(3), Some(3)), (None, Some(3))]
    {
        let drain = asked.map(Duration::from_secs);
        two.raise(Raise { drain, ..raise("r", 6) }).await.unwrap();
        let expected = expected.map(Duration::from_secs);
        assert_eq!(subject.revoked(one.instance).await, [("r".to_owned(), 5, expected)]);
    }
}

pub(in crate::store) async fn a_run_does_not_give_back_anothers_grant(subject: &mut impl Shared) {
    let (one, two) = (subject.store(), subject.other());
    one.raise(raise("r", 5)).await.unwrap();
    two.give_back(vec![(resource("r"), over(5))]).await.unwrap();
    two.give_back_all_but(Vec::new()).await.unwrap();
    assert_eq!(two.raise(raise("r", 6)).await.unwrap(), RAISED(6, true));
}

pub(in crate::store) async fn a_late_request_to_delete_a_grant_finds_no_other(
    subject: &mut impl Shared,
) {
    let (one, two) = (subject.store(), subject.other());
    one.raise(raise("r", 5)).await.unwrap();
    one.give_back(vec![(resource("r"), over(5))]).await.unwrap();
    let again = Raise { grant: Some(Grant { settle: SETTLE, number: 2 }), ..raise("r", 5) };
    one.raise(again).await.unwrap();
    one.give_back(vec![(resource("r"), over(5))]).await.unwrap();
    assert_eq!(two.raise(raise("r", 6)).await.unwrap(), RAISED(6, true));
    let second = OverGrant { number: Some(2), ..over(5) };
    one.give_back(vec![(resource("r"), second)]).await.unwrap();
    assert_eq!(two.raise(raise("r", 6)).await.unwrap(), RAISED(6, false));
}

pub(in crate::store) async fn a_run_that_is_gone_raises_nothing(subject: &mut impl Shared) {
    let gone = subject.instance();
    subject.store().raise(raise("r", 5)).await.unwrap();
    subject.next_run().await;

    let store = subject.store();
    let old = Run { instance: gone, ..subject.store() };
    old.raise(raise("r", 9)).await.unwrap_err();
    old.raise(raise("s", 1)).await.unwrap_err();
    assert_eq!(store.load(resource("r")).await.unwrap().mark, Some(confirmed(5)));
    assert_eq!(store.load(resource("s")).await.unwrap().mark, None);
    assert_eq!(left(&store, "r").await, [(5, SETTLE)]);
    assert_eq!(store.raise(raise("r", 6)).await.unwrap(), RAISED(6, true));
}

/// The classic hole: a raise that waited for another one's lock must see what that one recorded.
pub(in crate::store) async fn of_a_grant_and_a_newer_raise_at_once_one_knows_of_the_other(
    subject: &mut impl Shared,
) {
    let (one, two) = (subject.store(), subject.other());
    for nth in 0..300 {
        let name = format!("r{nth}");
        let mark = Raise { grant: None, ..raise(&name, 5) };
        two.raise(mark).await.unwrap();
        let (older, newer) = join(one.raise(raise(&name, 5)), two.raise(raise(&name, 6))).await;
        let (older, newer) = (older.unwrap(), newer.unwrap());
        assert_eq!(newer.mark, confirmed(6));
        let is_granted = older.mark == confirmed(5);
        assert_eq!(newer.elsewhere, is_granted, "{nth}: {older:?} {newer:?}");
    }
}
