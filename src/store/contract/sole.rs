//! Rules of a store that one instance has to itself: what an earlier run left is the present one's to end.

use std::time::Duration;

use super::{LONGER, SETTLE, Subject, all_left, grant, left, over, raise, rank, resource};
use crate::fence::LeftGrant;
use crate::store::Raise;

macro_rules! tests {
    ($subject:expr) => {
        $crate::store::contract::sole_tests!($subject;
            what_is_left_is_read_with_the_resource,
            what_an_earlier_run_left_is_given_back_by_the_present_one,
            a_grant_that_is_taken_again_is_this_runs,
            what_is_left_is_forgotten_by_its_settle_time,
        );
    };
    ($subject:expr; $($rule:ident,)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::store::contract::sole::$rule(&mut $subject.await).await;
            }
        )*
    };
}
pub(in crate::store) use tests;

pub(in crate::store) async fn what_is_left_is_read_with_the_resource(subject: &mut impl Subject) {
    let store = &subject.store();
    store.raise(raise("r", 5)).await.unwrap();
    assert_eq!(store.load(resource("r")).await.unwrap().left, []);

    subject.next_run().await;

    let state = subject.store().load(resource("r")).await.unwrap();
    assert_eq!(state.left, [LeftGrant { rank: rank(5), settle: SETTLE }]);
}

pub(in crate::store) async fn what_an_earlier_run_left_is_given_back_by_the_present_one(
    subject: &mut impl Subject,
) {
    subject.store().raise(raise("r", 5)).await.unwrap();
    subject.next_run().await;

    let store = &subject.store();
    store.give_back(vec![(resource("r"), over(5))]).await.unwrap();
    assert_eq!(left(store, "r").await, []);
}

pub(in crate::store) async fn a_grant_that_is_taken_again_is_this_runs(subject: &mut impl Subject) {
    let store = &subject.store();
    store.raise(Raise { grant: grant(LONGER), ..raise("r", 5) }).await.unwrap();
    subject.next_run().await;

    let store = &subject.store();
    store.raise(raise("r", 5)).await.unwrap();
    assert_eq!(left(store, "r").await, [], "the token goes on, nobody waits for it");
    assert!(!store.forget_left(LONGER).await.unwrap());

    subject.next_run().await;

    let left = left(&subject.store(), "r").await;
    assert_eq!(left, [(5, LONGER)], "what the run before last sent may still take effect");
}

pub(in crate::store) async fn what_is_left_is_forgotten_by_its_settle_time(
    subject: &mut impl Subject,
) {
    let store = &subject.store();
    store.raise(raise("r", 5)).await.unwrap();
    store.raise(Raise { grant: grant(LONGER), ..raise("s", 6) }).await.unwrap();
    subject.next_run().await;

    let store = &subject.store();
    let moment = Duration::from_millis(1);
    assert!(store.forget_left(SETTLE - moment).await.unwrap());
    assert_eq!(all_left(store).await, [("r".into(), 5), ("s".into(), 6)]);
    assert!(store.forget_left(SETTLE).await.unwrap());
    assert_eq!(all_left(store).await, [("s".into(), 6)]);
    assert!(!store.forget_left(LONGER).await.unwrap());
    assert_eq!(all_left(store).await, []);
    assert_eq!(left(store, "s").await, []);
}
