//! A lease that is kept alive, and the news that it is lost.
//!
//! Invariant: the deadline is the time *before* the request was sent that the server confirmed,
//! plus the TTL that it granted, on `CLOCK_BOOTTIME`; the server's own deadline is later. The
//! lease counts as lost a margin before that, or at once when the server says so, and is never
//! called live again. Deliberately absent: any say in when the work is over. A [`HeldLease`] is
//! released when it is dropped, so it has to outlive the work; what may go on longer has to
//! [`abandon`](HeldLease::abandon) it.

mod acquisition;

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::LeaseError;
use super::leases::Leases;
use super::wire::Lease;
use super::writes::Writes;
use crate::clock::{Boottime, Clock};
use crate::fence::{Owner, Resource, Token};

/// What to acquire, and how.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What the lease is for.
    pub resource: Resource,
    /// Who acquires it. Unique per worker: the same owner acquiring again ends its older lease.
    pub owner: Owner,
    /// The time to live to ask for; renewed every third of it.
    pub ttl: Duration,
    /// How long to wait for another holder to let go.
    pub wait: Duration,
    /// How long before the deadline the lease counts as lost when no renewal succeeds: the time
    /// that the worker needs to stop. At most half the TTL is used of it.
    pub margin: Duration,
}

impl Terms {
    /// The usual terms: a TTL of 10 s, no wait, a margin of 2 s.
    #[must_use]
    pub const fn new(resource: Resource, owner: Owner) -> Terms {
        Terms {
            resource,
            owner,
            ttl: Duration::from_secs(10),
            wait: Duration::ZERO,
            margin: Duration::from_secs(2),
        }
    }
}

/// Why a lease is lost.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The server says that it is over.
    #[error("the coordinator ended it: {detail}")]
    Told {
        /// The server's words.
        detail: String,
    },
    /// No renewal was confirmed in time.
    #[error("no renewal was confirmed in time ({last_error})")]
    Unconfirmed {
        /// What became of the last one since the last success.
        last_error: String,
    },
}

#[derive(Clone, Debug)]
struct State {
    /// When the server may give the lease to somebody else.
    deadline: Boottime,
    /// When it counts as lost: the margin before the deadline.
    stop_at: Boottime,
    last_error: Option<String>,
    lost: Option<Lost>,
}

/// One held lease and the task that renews it. Dropping it releases the lease, as far as the
/// runtime still runs the task that this needs; [`HeldLease::release`] also says whether it did.
#[derive(Debug)]
pub struct HeldLease {
    view: LeaseView,
    /// What is left to do at the end; `None` after it was done.
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    leases: Leases,
    /// Fires when the lease is lost, and when it is let go.
    over: CancellationToken,
    _renewal: DropGuard,
}

/// Looks at a held lease. Cheap to clone; outlives the [`HeldLease`], which it then calls lost in
/// due time.
#[derive(Clone, Debug)]
pub struct LeaseView {
    lease: Lease,
    clock: Clock,
    state: watch::Sender<State>,
}

impl HeldLease {
    /// Acquires a lease and begins to renew it, in a task of the tokio runtime that this is called
    /// in.
    ///
    /// # Errors
    /// [`LeaseError::Held`] when another owner kept it during the wait. Unreachable coordinators
    /// are tried again within the wait, but only if one was reached before.
    pub async fn acquire(
        leases: &Leases,
        clock: Clock,
        terms: &Terms,
    ) -> Result<HeldLease, LeaseError> {
        let (lease, sent_at) = acquisition::acquire(leases, clock, terms).await?;
        let state = State::confirmed(sent_at, lease.ttl(), terms.margin);
        let view = LeaseView { lease, clock, state: watch::Sender::new(state) };
        let stop = CancellationToken::new();
        let renewal = Renewal { leases: leases.clone(), view: view.clone(), margin: terms.margin };
        tokio::spawn(stop.clone().run_until_cancelled_owned(renewal.run(sent_at)));
        let over = CancellationToken::new();
        let (watched, told) = (view.clone(), over.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            watched.lost().await;
            told.cancel();
        }));
        let ending = Ending { leases: leases.clone(), over, _renewal: stop.drop_guard() };
        Ok(HeldLease { view, ending: Some(ending) })
    }

    /// What others may look at.
    #[must_use]
    pub fn view(&self) -> &LeaseView {
        &self.view
    }

    /// The fencing token, to be sent with every write.
    #[must_use]
    pub fn token(&self) -> Token {
        self.view.token()
    }

    /// Waits until the lease is lost; see [`LeaseView::lost`].
    pub async fn lost(&self) -> Lost {
        self.view.lost().await
    }

    /// A token that is cancelled when the lease is lost, before its TTL is over, or let go: for
    /// work in many places that has to stop then.
    #[must_use]
    pub fn over(&self) -> CancellationToken {
        let ending = self.ending.as_ref().expect("it is there until the lease is given up");
        ending.over.clone()
    }

    /// Sends writes through a gateway with `http`, each with this lease's token.
    #[must_use]
    pub fn writes(&self, http: &reqwest::Client) -> Writes {
        Writes::new(http.clone(), self.view.clone())
    }

    /// Stops renewing and ends the lease. Call it when all work under the lease is over.
    ///
    /// # Errors
    /// See [`Leases::release`]. The lease then expires by itself.
    pub async fn release(mut self) -> Result<(), LeaseError> {
        match self.ending.take() {
            Some(ending) => ending.release(&self.view.lease).await,
            None => Ok(()),
        }
    }

    /// Stops renewing and leaves the lease to its expiry: where work under it may go on, nobody
    /// else is to begin before that.
    pub fn abandon(mut self) {
        if let Some(ending) = self.ending.take() {
            ending.over.cancel();
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        let Some(ending) = self.ending.take() else { return };
        ending.over.cancel();
        // Without a runtime it expires by itself.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let lease = self.view.lease.clone();
        runtime.spawn(async move {
            if let Err(error) = ending.release(&lease).await {
                tracing::debug!(%error, "a lease that was let go was not released; it expires");
            }
        });
    }
}

impl Ending {
    async fn release(self, lease: &Lease) -> Result<(), LeaseError> {
        let Ending { leases, over, _renewal: renewal } = self;
        over.cancel();
        // First, so that no renewal comes after the release.
        drop(renewal);
        leases.release(&lease.resource, &lease.owner, lease.token).await
    }
}

impl LeaseView {
    /// The lease as it was when it was acquired.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.lease.token
    }

    /// Whether work under the lease may go on, as of now. Looks at the clock, so it is right even
    /// just after a suspension.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let state = self.state.borrow();
        state.lost.is_none() && self.clock.now() < state.stop_at
    }

    /// When the lease may be given to somebody else, unless it is renewed.
    #[must_use]
    pub fn deadline(&self) -> Boottime {
        self.state.borrow().deadline
    }

    /// Waits until the lease is lost: at once when the coordinator says so, else the margin before
    /// the deadline. It never comes back: stop the work now.
    pub async fn lost(&self) -> Lost {
        let mut news = self.state.subscribe();
        loop {
            let stop_at = {
                let state = news.borrow_and_update();
                if let Some(lost) = &state.lost {
                    return lost.clone();
                }
                state.stop_at
            };
            tokio::select! {
                () = self.clock.sleep_until(stop_at) => self.lose_if_due(),
                // The sender lives as long as this view.
                _ = news.changed() => {}
            }
        }
    }

    fn lose_if_due(&self) {
        self.change(|_| ());
    }

    /// Changes the state, unless the lease is lost or is due to be: what is lost stays lost.
    fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_if_modified(|state| {
            if state.lost.is_some() {
                return false;
            }
            if self.clock.now() >= state.stop_at {
                let last_error = state.last_error.take();
                let last_error = last_error.unwrap_or_else(|| "none was answered".to_owned());
                state.lost = Some(Lost::Unconfirmed { last_error });
            } else {
                change(state);
            }
            true
        });
    }
}

impl State {
    fn confirmed(sent_at: Boottime, ttl: Duration, margin: Duration) -> State {
        State {
            deadline: sent_at + ttl,
            stop_at: sent_at + (ttl - margin.min(ttl / 2)),
            last_error: None,
            lost: None,
        }
    }
}

struct Renewal {
    leases: Leases,
    view: LeaseView,
    margin: Duration,
}

impl Renewal {
    async fn run(self, mut confirmed_at: Boottime) {
        let mut ttl = self.view.lease.ttl();
        let pause = (ttl / 50).clamp(Duration::from_millis(20), Duration::from_millis(500));
        let clock = self.view.clock;
        loop {
            clock.sleep_until(confirmed_at + ttl / 3).await;
            let Some(sent_at) = self.begin() else { return };
            match self.ask(sent_at).await {
                Ok(lease) => {
                    (confirmed_at, ttl) = (sent_at, lease.ttl());
                    let state = State::confirmed(sent_at, ttl, self.margin);
                    self.view.change(|old| *old = state);
                }
                Err(LeaseError::Lost { detail }) => {
                    self.view.change(|state| state.lost = Some(Lost::Told { detail }));
                }
                Err(error) => {
                    self.view.change(|state| state.last_error = Some(error.to_string()));
                    clock.sleep_until(clock.now() + pause).await;
                }
            }
        }
    }

    /// The moment before the request is sent; `None` if it is too late for one.
    fn begin(&self) -> Option<Boottime> {
        self.view.lose_if_due();
        self.view.state.borrow().lost.is_none().then(|| self.view.clock.now())
    }

    /// Asks once, for two thirds of what is left: a slow answer may come, and a second request has
    /// a chance if none does.
    async fn ask(&self, sent_at: Boottime) -> Result<Lease, LeaseError> {
        let left = self.view.state.borrow().stop_at.since(sent_at);
        let Lease { resource, owner, token, .. } = &self.view.lease;
        let ask = self.leases.renew(resource, owner, *token, Some(self.view.lease.ttl()));
        let patience = (left * 2 / 3).max(Duration::from_millis(50));
        tokio::time::timeout(patience, ask).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} ms", patience.as_millis());
            Err(LeaseError::Unreachable { sent: true, reason })
        })
    }
}
