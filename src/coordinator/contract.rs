//! What every coordinator has to do. [`tests!`] makes one test of each rule.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{Acquired, Coordinator, CoordinatorError, Lease, LeaseMetrics, Released};
use crate::fence::{Owner, Resource, Token};

/// No rule takes this long.
const DEADLINE: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(3600);
/// How long a waiter waits that is to go without the lease.
const IMPATIENCE: Duration = Duration::from_millis(150);
const NO_WAIT: Duration = Duration::ZERO;

/// A coordinator without leases, and what it needs to live.
pub(super) struct Subject {
    pub(super) coordinator: Arc<dyn Coordinator>,
    pub(super) metrics: LeaseMetrics,
    /// The shortest TTL that it gives; tests wait it out.
    pub(super) shortest_ttl: Duration,
    pub(super) _keep: Box<dyn std::any::Any + Send + Sync>,
}

macro_rules! tests {
    ($subject:expr) => {
        $crate::coordinator::contract::tests!($subject;
            a_lease_is_shown_until_it_is_released,
            another_owner_is_refused_and_told_the_holder,
            the_same_owner_gets_a_higher_token_and_the_old_one_is_over,
            a_renewal_prolongs,
            nothing_revives_an_expired_lease,
            late_renewal_and_release_leave_the_next_lease_alone,
            owner_and_token_must_both_match,
            a_release_lets_waiters_in_by_order_of_arrival,
            a_caller_without_patience_does_not_overtake,
            an_expiry_lets_a_waiter_in,
            a_wait_ends_with_the_holder_of_that_moment,
            a_waiter_that_left_is_passed_over,
            a_lease_that_nobody_took_delivery_of_is_released,
            tokens_of_one_resource_rise_whatever_happens,
            leases_are_listed_in_pages,
        );
    };
    ($subject:expr; $($rule:ident,)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::coordinator::contract::$rule(&$subject.await).await;
            }
        )*
    };
}
pub(super) use tests;

impl Subject {
    async fn acquire(&self, name: &str, who: &str, ttl: Duration) -> Lease {
        granted(self.coordinator.acquire(resource(name), owner(who), ttl, NO_WAIT).await)
    }

    /// Begins to wait, and returns when the wait has begun.
    async fn wait(&self, name: &str, who: &str) -> Wait {
        let before = self.metrics.waiters.get();
        let coordinator = Arc::clone(&self.coordinator);
        let (name, who) = (resource(name), owner(who));
        let wait = tokio::spawn(async move { coordinator.acquire(name, who, LONG, LONG).await });
        until(async || self.metrics.waiters.get() > before).await;
        wait
    }

    async fn holder(&self, name: &str) -> Option<Lease> {
        self.coordinator.holder(resource(name)).await.unwrap().lease
    }

    async fn renew(&self, lease: &Lease) -> Option<Lease> {
        let Lease { resource, owner, token, .. } = lease.clone();
        self.coordinator.renew(resource, owner, token, None).await.unwrap()
    }

    async fn release(&self, lease: &Lease) -> Released {
        let Lease { resource, owner, token, .. } = lease.clone();
        self.coordinator.release(resource, owner, token).await.unwrap()
    }
}

type Wait = JoinHandle<Result<Acquired, CoordinatorError>>;

pub(super) async fn a_lease_is_shown_until_it_is_released(subject: &Subject) {
    assert_eq!(subject.holder("r").await, None);
    let lease = subject.acquire("r", "a", LONG).await;
    assert_eq!(lease.ttl, LONG);
    assert_eq!(lease.expires_at, lease.acquired_at + LONG);
    assert_eq!(subject.holder("r").await.as_ref(), Some(&lease));
    assert_eq!(subject.holder("s").await, None, "another resource");
    assert_eq!(subject.release(&lease).await, Released::Released);
    assert_eq!(subject.holder("r").await, None);
    assert_eq!(subject.release(&lease).await, Released::NotFound);
    assert_eq!(subject.renew(&lease).await, None);
}

pub(super) async fn another_owner_is_refused_and_told_the_holder(subject: &Subject) {
    let lease = subject.acquire("r", "a", LONG).await;
    let refused = subject.coordinator.acquire(resource("r"), owner("b"), LONG, NO_WAIT).await;
    assert_eq!(held(refused), lease);
}

pub(super) async fn the_same_owner_gets_a_higher_token_and_the_old_one_is_over(subject: &Subject) {
    let old = subject.acquire("r", "a", LONG).await;
    let waiter = subject.wait("r", "b").await;
    let new = subject.acquire("r", "a", LONG).await;
    assert!(new.token > old.token);
    assert_eq!(subject.renew(&old).await, None);
    assert_eq!(subject.release(&old).await, Released::OwnerMismatch);
    assert_eq!(subject.holder("r").await.as_ref(), Some(&new));
    assert!(!waiter.is_finished());
}

pub(super) async fn a_renewal_prolongs(subject: &Subject) {
    let lease = subject.acquire("r", "a", Duration::from_secs(5)).await;
    let renewed = subject
        .coordinator
        .renew(lease.resource.clone(), lease.owner.clone(), lease.token, Some(LONG))
        .await
        .unwrap()
        .expect("the lease is live");
    assert_eq!(renewed.ttl, LONG);
    assert!(renewed.expires_at >= lease.acquired_at + LONG);
    assert_eq!((renewed.token, renewed.acquired_at), (lease.token, lease.acquired_at));
    assert_eq!(subject.holder("r").await, Some(renewed.clone()));
    assert_eq!(subject.renew(&lease).await.expect("still live").ttl, LONG, "its own TTL by now");
}

pub(super) async fn nothing_revives_an_expired_lease(subject: &Subject) {
    let lease = subject.acquire("r", "a", subject.shortest_ttl).await;
    until(async || subject.holder("r").await.is_none()).await;
    assert_eq!(subject.renew(&lease).await, None);
    assert_eq!(subject.release(&lease).await, Released::NotFound);
    assert_eq!(subject.holder("r").await, None);
    assert!(subject.coordinator.list(None, 10).await.unwrap().is_empty());
    let again = subject.acquire("r", "a", LONG).await;
    assert!(again.token > lease.token);
}

pub(super) async fn late_renewal_and_release_leave_the_next_lease_alone(subject: &Subject) {
    let old = subject.acquire("r", "a", subject.shortest_ttl).await;
    until(async || subject.holder("r").await.is_none()).await;
    let new = subject.acquire("r", "b", LONG).await;
    assert_eq!(subject.renew(&old).await, None);
    assert_eq!(subject.release(&old).await, Released::OwnerMismatch);
    assert_eq!(subject.holder("r").await, Some(new));
}

pub(super) async fn owner_and_token_must_both_match(subject: &Subject) {
    let lease = subject.acquire("r", "a", LONG).await;
    let other = subject.acquire("s", "a", LONG).await;
    for wrong in [
        Lease { owner: owner("b"), ..lease.clone() },
        Lease { token: other.token, ..lease.clone() },
        Lease { token: Token::MAX, ..lease.clone() },
    ] {
        assert_eq!(subject.renew(&wrong).await, None);
        assert_eq!(subject.release(&wrong).await, Released::OwnerMismatch);
    }
    assert_eq!(subject.holder("r").await, Some(lease));
}

pub(super) async fn a_release_lets_waiters_in_by_order_of_arrival(subject: &Subject) {
    let mut lease = subject.acquire("r", "first", LONG).await;
    let mut waits = Vec::new();
    for who in ["b", "c", "a", "d"] {
        waits.push((who, subject.wait("r", who).await));
    }
    for (who, wait) in waits {
        assert_eq!(subject.release(&lease).await, Released::Released);
        let next = granted(soon(wait).await.unwrap());
        assert_eq!(next.owner.as_str(), who);
        assert!(next.token > lease.token);
        lease = next;
    }
}

pub(super) async fn a_caller_without_patience_does_not_overtake(subject: &Subject) {
    let lease = subject.acquire("r", "a", LONG).await;
    let waiter = subject.wait("r", "b").await;
    let release = subject.release(&lease);
    let pushy = subject.coordinator.acquire(resource("r"), owner("c"), LONG, NO_WAIT);
    let (released, refused) = soon(async { tokio::join!(release, pushy) }).await;
    assert_eq!(released, Released::Released);
    assert_ne!(held(refused).owner.as_str(), "c");
    assert_eq!(granted(soon(waiter).await.unwrap()).owner.as_str(), "b");
}

pub(super) async fn an_expiry_lets_a_waiter_in(subject: &Subject) {
    let old = subject.acquire("r", "a", subject.shortest_ttl).await;
    let new = granted(soon(subject.wait("r", "b").await).await.unwrap());
    assert!(new.token > old.token);
    assert!(new.acquired_at >= old.expires_at, "no sooner than the old one ended");
}

pub(super) async fn a_wait_ends_with_the_holder_of_that_moment(subject: &Subject) {
    let lease = subject.acquire("r", "a", LONG).await;
    let head = subject.wait("r", "b").await;
    let second = subject.coordinator.acquire(resource("r"), owner("c"), LONG, IMPATIENCE);
    assert_eq!(held(soon(second).await), lease);
    assert!(!head.is_finished());
}

pub(super) async fn a_waiter_that_left_is_passed_over(subject: &Subject) {
    let lease = subject.acquire("r", "a", LONG).await;
    let left = subject.wait("r", "b").await;
    let stays = subject.wait("r", "c").await;
    let waiting = subject.metrics.waiters.get();
    left.abort();
    until(async || subject.metrics.waiters.get() < waiting).await;
    subject.release(&lease).await;
    assert_eq!(granted(soon(stays).await.unwrap()).owner.as_str(), "c");
}

pub(super) async fn a_lease_that_nobody_took_delivery_of_is_released(subject: &Subject) {
    let before = subject.acquire("r", "a", LONG).await;
    subject.release(&before).await;
    let mut abandoned =
        Box::pin(subject.coordinator.acquire(resource("r"), owner("b"), LONG, NO_WAIT));
    // Polled once, so that it is under way; the token is issued without its being polled again.
    let begun = futures_util::poll!(abandoned.as_mut());
    assert!(begun.is_pending());
    until(async || subject.holder("r").await.is_some()).await;
    drop(abandoned);
    let next = subject.coordinator.acquire(resource("r"), owner("c"), LONG, DEADLINE);
    let next = granted(soon(next).await);
    assert!(next.token.get() > before.token.get() + 1, "the token between them is a gap");
}

pub(super) async fn tokens_of_one_resource_rise_whatever_happens(subject: &Subject) {
    let mut last = None;
    for round in 0..6 {
        let ttl = if round % 3 == 0 { subject.shortest_ttl } else { LONG };
        let lease = subject.acquire("r", &format!("owner {round}"), ttl).await;
        assert!(Some(lease.token) > last);
        last = Some(lease.token);
        if ttl == LONG {
            assert_eq!(subject.release(&lease).await, Released::Released);
        }
        until(async || subject.holder("r").await.is_none()).await;
    }
}

pub(super) async fn leases_are_listed_in_pages(subject: &Subject) {
    for name in ["c", "a/x", "b", "a"] {
        subject.acquire(name, "owner", LONG).await;
    }
    let names = async |after: Option<&str>, limit| {
        let leases = subject.coordinator.list(after.map(resource), limit).await.unwrap();
        leases.iter().map(|lease| lease.resource.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 10).await, ["a", "a/x", "b", "c"]);
    assert_eq!(names(None, 2).await, ["a", "a/x"]);
    assert_eq!(names(Some("a/x"), 2).await, ["b", "c"]);
    assert!(names(Some("c"), 2).await.is_empty());
}

/// Waits for a level.
pub(super) async fn until(mut reached: impl AsyncFnMut() -> bool) {
    let look = async {
        while !reached().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    soon(look).await;
}

pub(super) async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, event).await.expect("it happens within the deadline")
}

#[track_caller]
pub(super) fn granted(acquired: Result<Acquired, CoordinatorError>) -> Lease {
    match acquired.expect("the coordinator answers") {
        Acquired::Granted(lease) => lease,
        Acquired::Held(lease) => panic!("held by {lease:?}"),
    }
}

#[track_caller]
fn held(acquired: Result<Acquired, CoordinatorError>) -> Lease {
    match acquired.expect("the coordinator answers") {
        Acquired::Granted(lease) => panic!("granted {lease:?}"),
        Acquired::Held(lease) => lease,
    }
}

pub(super) fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

pub(super) fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}
