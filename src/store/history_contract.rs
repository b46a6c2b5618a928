//! What every store has to do with the coordinator's history. [`tests!`] makes one test of each
//! rule.

use super::contract::Subject;
use super::{History, HistoryStore, Raise};
use crate::fence::{Epoch, Rank, Resource, Token};

/// A store that keeps marks and the history.
pub(super) trait HistorySubject: Subject {
    /// The store of the present run.
    fn history(&self) -> &dyn HistoryStore;
}

macro_rules! tests {
    ($subject:expr) => {
        $crate::store::history_contract::tests!($subject;
            there_is_no_history_at_first,
            a_history_is_kept_as_it_is,
            only_what_is_known_is_replaced,
            of_those_that_replace_together_one_does,
            distrust_leaves_the_marks_and_makes_them_unconfirmed,
            nothing_is_distrusted_if_nothing_is_replaced,
            a_store_is_empty_until_the_first_mark,
        );
    };
    ($subject:expr; $($rule:ident,)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::store::history_contract::$rule(&mut $subject.await).await;
            }
        )*
    };
}
pub(super) use tests;

fn history(nonce: &str) -> History {
    History {
        epoch: Epoch::FIRST.next(),
        id: "store".to_owned(),
        cluster_id: u64::MAX,
        revision: i64::MAX,
        nonce: nonce.to_owned(),
        sentinel: 5,
        next: Some("next".to_owned()),
    }
}

async fn raise(subject: &impl HistorySubject, number: u64) {
    let raise = Raise {
        resource: Resource::new("r").unwrap(),
        rank: Rank::first(Token::new(number).unwrap()),
        confirmed: true,
        owner: None,
        grant: None,
        spare: None,
        drain: None,
    };
    subject.history().raise_marks(vec![raise]).await.unwrap();
}

/// The mark's number, and whether it is confirmed.
async fn mark(subject: &impl HistorySubject) -> (u64, bool) {
    let row = subject.store().show(Resource::new("r").unwrap()).await.unwrap().unwrap();
    (row.highest_token.get(), row.confirmed)
}

pub(super) async fn there_is_no_history_at_first(subject: &mut impl HistorySubject) {
    assert_eq!(subject.history().history().await.unwrap(), None);
}

pub(super) async fn a_history_is_kept_as_it_is(subject: &mut impl HistorySubject) {
    assert!(subject.history().replace_history(None, history("a")).await.unwrap());
    subject.next_run().await;
    assert_eq!(subject.history().history().await.unwrap(), Some(history("a")));
    let without = History { next: None, ..history("b") };
    let known = Some(history("a"));
    assert!(subject.history().replace_history(known, without.clone()).await.unwrap());
    assert_eq!(subject.history().history().await.unwrap(), Some(without));
}

pub(super) async fn only_what_is_known_is_replaced(subject: &mut impl HistorySubject) {
    let store = subject.history();
    assert!(!store.replace_history(Some(history("a")), history("b")).await.unwrap());
    assert!(store.replace_history(None, history("a")).await.unwrap());
    assert!(!store.replace_history(None, history("b")).await.unwrap());
    let other = History { next: None, ..history("a") };
    assert!(!store.replace_history(Some(other), history("b")).await.unwrap());
    assert_eq!(store.history().await.unwrap(), Some(history("a")));
}

pub(super) async fn of_those_that_replace_together_one_does(subject: &mut impl HistorySubject) {
    let store = subject.history();
    for known in [None, Some(history("first"))] {
        let name = if known.is_none() { "first" } else { "second" };
        let all = (0..8).map(|_| store.replace_history(known.clone(), history(name)));
        let replaced = futures_util::future::try_join_all(all).await.unwrap();
        assert_eq!(replaced.into_iter().filter(|replaced| *replaced).count(), 1);
    }
}

pub(super) async fn distrust_leaves_the_marks_and_makes_them_unconfirmed(
    subject: &mut impl HistorySubject,
) {
    raise(subject, 7).await;
    let store = subject.history();
    store.replace_history(None, history("a")).await.unwrap();
    assert!(store.replace_history_and_distrust_marks(history("a"), history("b")).await.unwrap());
    subject.next_run().await;
    assert_eq!(mark(subject).await, (7, false));
    assert_eq!(subject.history().history().await.unwrap(), Some(history("b")));
}

pub(super) async fn nothing_is_distrusted_if_nothing_is_replaced(
    subject: &mut impl HistorySubject,
) {
    raise(subject, 7).await;
    let store = subject.history();
    assert!(!store.replace_history_and_distrust_marks(history("a"), history("b")).await.unwrap());
    assert_eq!(mark(subject).await, (7, true));
}

pub(super) async fn a_store_is_empty_until_the_first_mark(subject: &mut impl HistorySubject) {
    subject.history().replace_history(None, history("a")).await.unwrap();
    assert!(subject.history().is_empty().await.unwrap());
    raise(subject, 7).await;
    assert!(!subject.history().is_empty().await.unwrap());
}
