//! Admission: the only place where a [`Permit`] is made.
//!
//! [`Fences`] joins the pure cells of [`crate::fence`] with the store and the coordinator. The fast
//! path looks at memory alone. Everything else goes through [`Fences::admit`], which does what the
//! cell says must come first and then asks the cell again; it never decides anything by itself.
//! Dropping the future of an admission is safe at any point: nothing was forwarded yet, and a
//! raise that the store confirms after that only makes the fence stricter.
//! Deliberately absent: HTTP. Nothing here knows what a request is.

mod conversation;
mod elsewhere;
mod housekeeping;
mod in_doubt;
mod permit;
mod slot;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use prometheus::IntGauge;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::clock::{Boottime, Clock};
use crate::coordinator::{Coordinator, CoordinatorError};
use crate::fence::{Epoch, Grant, OverGrant, Rank, Resource, Step, Terms, Token};
use crate::metrics::{FenceMetrics, Timing};
use crate::store::{FenceRow, FenceStore, InstanceId, InstanceLease, Left, StoreError};
use crate::trace::TraceId;

pub use conversation::OperatorRaise;
use conversation::{Asked, answer_within};
pub use housekeeping::Bounds;
pub use in_doubt::{DoubtReason, DoubtView, Doubts, LeftView, Write};
pub use permit::{Permit, Right};
pub(crate) use slot::Slot;

/// What a write asks for.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// The route's terms.
    pub terms: Terms,
    /// How long the write may wait for older ones.
    pub wait: Duration,
    /// How long all of it may take, if there is a limit for that: then the write is refused for what
    /// it was waiting for.
    pub limit: Option<Duration>,
}

/// Why a write was not admitted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refused {
    /// A newer token was accepted already.
    #[error("a newer token, {highest}, was accepted before")]
    Stale {
        /// The mark.
        highest: Token,
        /// How long ago it was raised to that, as far as this instance knows.
        late_by: Duration,
    },
    /// The coordinator does not name the token as the holder's.
    #[error("the coordinator does not name this token as the present holder's")]
    NotHeld {
        /// The mark, if any.
        highest: Option<Token>,
    },
    /// Older writes were not over in time.
    #[error("older writes are still under way")]
    Draining,
    /// Too many writes wait on the resource.
    #[error("too many writes wait on this resource")]
    Overloaded,
    /// The gateway is at the end of its shutdown.
    #[error("the gateway is shutting down; send the write again")]
    ShuttingDown,
    /// The coordinator did not answer.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// The store did not confirm.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What [`Fences`] are put together from.
pub struct FencesParts {
    /// Keeps the marks and grants.
    pub store: Arc<dyn FenceStore>,
    /// Until when this instance may admit; unlimited where it has the store to itself.
    pub lease: Arc<InstanceLease>,
    /// Says whose a new token is.
    pub coordinator: Arc<dyn Coordinator>,
    /// Reads time.
    pub clock: Clock,
    /// What bounds memory.
    pub bounds: Bounds,
    /// What is counted and timed.
    pub metrics: FenceMetrics,
}

/// The fences of one instance.
pub struct Fences {
    slots: DashMap<Resource, Arc<Slot>>,
    /// Of the present run. Each slot has that of the run in which it came into being.
    lease: Mutex<Arc<InstanceLease>>,
    coordinator: Arc<dyn Coordinator>,
    shared: Arc<Shared>,
    /// Where the store and the coordinator have their connections.
    home: Handle,
    /// No instance that left a grant behind was alive at this moment or later.
    dead_since: Boottime,
    bounds: Mutex<Bounds>,
}

/// A grant whose writes are over, and the run that has it.
type Over = (InstanceId, Resource, OverGrant);

/// What a permit needs when it ends.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) store: Arc<dyn FenceStore>,
    /// For what goes on after its caller left.
    tasks: TaskTracker,
    pub(crate) doubts: Doubts,
    pub(crate) metrics: FenceMetrics,
    /// Times that writes in flight were cut, so that those who forward know when to look.
    cuts: AtomicU64,
    /// No write that has to wait is admitted any more.
    is_closed: AtomicBool,
    over: mpsc::Sender<Over>,
    /// The number of the last grant that was asked for.
    last_grant: AtomicI64,
    /// Revoked grants whose writes are being waited for, and how long these may finish.
    making_way: DashMap<(InstanceId, Resource, Rank), Option<Duration>>,
}

impl Shared {
    fn new_grant(&self, settle: Duration) -> Grant {
        Grant { settle, number: self.last_grant.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    /// Counts and measures a write that waits for older ones.
    fn draining(&self, trace_id: TraceId) -> (Present<'_>, Timed<'_>) {
        let FenceMetrics { draining, drain, .. } = &self.metrics;
        (Present::new(draining), Timed::new(self, drain, trace_id))
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Tells those who forward that a write of theirs may have been cut.
    fn cut(&self) {
        self.cuts.fetch_add(1, Ordering::Release);
    }
}

impl Fences {
    /// Starts with nothing in memory, and spawns what gives grants back. A store that is not shared
    /// must be this process's alone from before this call. Called on the runtime that serves them both.
    #[must_use]
    pub fn new(parts: FencesParts, tasks: &TaskTracker) -> Arc<Fences> {
        let (over, queue) = mpsc::channel(housekeeping::QUEUE_GRANTS);
        let fences = Arc::new(Fences::unattended(parts, over, tasks));
        housekeeping::spawn(&fences, queue, tasks);
        fences
    }

    /// Without housekeeping; grants that are over go to `over`.
    fn unattended(parts: FencesParts, over: mpsc::Sender<Over>, tasks: &TaskTracker) -> Fences {
        let FencesParts { store, lease, coordinator, clock, bounds, metrics } = parts;
        Fences {
            slots: DashMap::new(),
            lease: Mutex::new(lease),
            coordinator,
            shared: Arc::new(Shared {
                clock,
                store,
                tasks: tasks.clone(),
                doubts: Doubts::new(clock),
                metrics,
                cuts: AtomicU64::new(0),
                is_closed: AtomicBool::new(false),
                over,
                last_grant: AtomicI64::new(0),
                making_way: DashMap::new(),
            }),
            home: Handle::current(),
            dead_since: clock.now(),
            bounds: Mutex::new(bounds),
        }
    }

    /// Admits from memory, without I/O or allocation, a write whose token holds the grant; refuses
    /// from memory one that is known to be stale. `None`: [`Fences::admit`] has to find out.
    pub fn admit_from_memory(
        &self,
        resource: &str,
        token: Token,
        terms: &Terms,
        now: Boottime,
    ) -> Option<Result<Permit, Refused>> {
        let slot = self.slots.get(resource)?;
        if !slot.lease.is_live(now) || self.shared.is_closed() {
            return None;
        }
        let (step, rank) = ask(&slot, token, terms, self.coordinator.epoch(), now);
        match step {
            Step::Admit => Some(Ok(Permit::new(Arc::clone(&slot), rank, terms))),
            Step::Stale(highest) => Some(Err(stale(&slot, highest, now))),
            Step::Drain { cut, .. } => {
                // Said once; if it were dropped here, nobody would ever tell those that are cut.
                if cut {
                    self.shared.cut();
                }
                None
            }
            Step::Load | Step::Confirm | Step::Grant | Step::Elsewhere | Step::Closing => None,
        }
    }

    /// Admits or refuses a write; waits for the store, the coordinator and older writes where it
    /// has to. `trace_id` is said with what is logged of it.
    ///
    /// # Errors
    /// See [`Refused`]. Nothing was forwarded.
    pub async fn admit(
        self: &Arc<Self>,
        resource: &Resource,
        token: Token,
        demand: &Demand,
        trace_id: TraceId,
    ) -> Result<Permit, Refused> {
        let asked = Arc::new(Asked::new(trace_id));
        let decided = self.decide(resource, token, demand, &asked);
        match demand.limit {
            Some(limit) => timeout(limit, decided).await.unwrap_or_else(|_| Err(asked.is_silent())),
            None => decided.await,
        }
    }

    async fn decide(
        self: &Arc<Self>,
        resource: &Resource,
        token: Token,
        demand: &Demand,
        asked: &Arc<Asked>,
    ) -> Result<Permit, Refused> {
        let give_up_at = self.shared.clock.now() + demand.wait;
        let _counted = Present::new(&self.shared.metrics.waiting);
        let mut draining = None;
        loop {
            let slot = self.slot(resource);
            let _waiting = Waiting::enter(&slot.waiters, self.bounds().waiters)?;
            let changed = slot.changed.notified();
            tokio::pin!(changed);
            // Enabled before the cell is asked, else a change between the two would be missed.
            changed.as_mut().enable();
            if self.shared.is_closed() {
                return Err(Refused::ShuttingDown);
            }
            let now = self.shared.clock.now();
            if !slot.lease.is_live(now) {
                return Err(not_live().into());
            }
            let (step, rank) = ask(&slot, token, &demand.terms, self.coordinator.epoch(), now);
            match step {
                Step::Admit => {
                    self.release_over(&slot);
                    return Ok(Permit::new(Arc::clone(&slot), rank, &demand.terms));
                }
                Step::Stale(highest) => return Err(stale(&slot, highest, now)),
                Step::Load | Step::Confirm | Step::Grant => {
                    self.converse(&slot, token, demand, asked).await?;
                }
                Step::Closing => self.wait_for_successor(&slot, changed).await?,
                Step::Drain { again_at, cut } => {
                    if cut {
                        self.shared.cut();
                    }
                    draining.get_or_insert_with(|| self.shared.draining(asked.trace_id));
                    self.wait_for_drain(changed, again_at, give_up_at).await?;
                }
                Step::Elsewhere => {
                    draining.get_or_insert_with(|| self.shared.draining(asked.trace_id));
                    self.wait_for_drain(changed, None, give_up_at).await?;
                }
            }
        }
    }

    async fn wait_for_drain(
        &self,
        changed: std::pin::Pin<&mut tokio::sync::futures::Notified<'_>>,
        again_at: Option<Boottime>,
        give_up_at: Boottime,
    ) -> Result<(), Refused> {
        let clock = self.shared.clock;
        if clock.now() >= give_up_at {
            return Err(Refused::Draining);
        }
        let look_at = again_at.map_or(give_up_at, |again_at| again_at.min(give_up_at));
        tokio::select! {
            () = changed => {}
            () = clock.sleep_until(look_at) => {}
        }
        Ok(())
    }

    fn slot(&self, resource: &Resource) -> Arc<Slot> {
        if let Some(slot) = self.slots.get(resource) {
            return Arc::clone(&slot);
        }
        let slot = self.slots.entry(resource.clone()).or_insert_with(|| {
            Arc::new(Slot::new(resource.clone(), self.lease(), Arc::clone(&self.shared)))
        });
        Arc::clone(&slot)
    }

    /// Bounds memory by this from now on.
    pub fn bound(&self, bounds: Bounds) {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner) = bounds;
    }

    fn bounds(&self) -> Bounds {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the present run.
    fn lease(&self) -> Arc<InstanceLease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this instance may admit.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.lease().is_live(self.shared.clock.now())
    }

    /// The time since this instance's lease was renewed; zero if it has the store to itself.
    #[must_use]
    pub fn lease_age(&self) -> Duration {
        let lease = self.lease();
        if lease.is_limited() { lease.age(self.shared.clock.now()) } else { Duration::ZERO }
    }

    /// Until this instance's lease is over; `None` if it has the store to itself.
    #[must_use]
    pub fn lease_remaining(&self) -> Option<Duration> {
        let lease = self.lease();
        lease.is_limited().then(|| lease.remaining(self.shared.clock.now()))
    }

    /// A page of fences, from the store.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn list(
        &self,
        after: Option<Resource>,
        limit: u32,
    ) -> Result<Vec<FenceRow>, StoreError> {
        answer_within(self.shared.store.list(after, limit)).await
    }

    /// One fence, from the store.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn show(&self, resource: Resource) -> Result<Option<FenceRow>, StoreError> {
        answer_within(self.shared.store.show(resource)).await
    }

    /// Writes of this resource that are in flight here.
    #[must_use]
    pub fn in_flight(&self, resource: &Resource) -> u32 {
        self.slots.get(resource).map_or(0, |slot| slot.cell().in_flight())
    }

    /// How often writes in flight were cut: whoever forwards one looks at its permit when this changes.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Acquire)
    }

    /// Writes whose outcome is unknown.
    #[must_use]
    pub fn doubts(&self) -> &Doubts {
        &self.shared.doubts
    }

    /// Grants that an earlier run did not give back and whose writes can still take effect.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn left(&self, limit: u32) -> Result<Vec<LeftView>, StoreError> {
        let clock = self.shared.clock;
        let left = answer_within(self.shared.store.left(limit)).await?;
        let views = left.into_iter().filter_map(|Left { resource, grant, gone_since }| {
            let until = gone_since.unwrap_or(self.dead_since) + grant.settle;
            (until > clock.now()).then(|| LeftView {
                resource,
                token: grant.rank.token,
                settles_at: clock.wall_at(until),
            })
        });
        Ok(views.collect())
    }

    /// Queues the grants of tenures that are over to be given back.
    fn release_over(&self, slot: &Slot) {
        let over = slot.cell().take_over(self.shared.clock.now());
        slot.give_back(over);
    }
}

/// Asks the cell about a write, and which rank it has if it is admitted.
fn ask(slot: &Slot, token: Token, terms: &Terms, epoch: Epoch, now: Boottime) -> (Step, Rank) {
    let mut cell = slot.cell();
    let step = cell.admit(token, terms, epoch, now);
    (step, cell.mark().map_or(Rank::first(token), |mark| mark.rank))
}

fn stale(slot: &Slot, highest: Token, now: Boottime) -> Refused {
    Refused::Stale { highest, late_by: slot.cell().mark_age(now) }
}

fn not_live() -> StoreError {
    StoreError("the lease of this instance in the store has run out; it is starting over".into())
}

/// Counts in a gauge for as long as it lives.
struct Present<'a>(&'a IntGauge);

impl Present<'_> {
    fn new(gauge: &IntGauge) -> Present<'_> {
        gauge.inc();
        Present(gauge)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Measures how long it lives, however that ends.
struct Timed<'a> {
    timing: &'a Timing,
    trace_id: TraceId,
    clock: Clock,
    since: Boottime,
}

impl Timed<'_> {
    fn new<'a>(shared: &Shared, timing: &'a Timing, trace_id: TraceId) -> Timed<'a> {
        Timed { timing, trace_id, clock: shared.clock, since: shared.clock.now() }
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.timing.observe(self.clock.now().since(self.since), self.trace_id);
    }
}

/// Counts a write that waits, within a bound.
struct Waiting<'a>(&'a AtomicU32);

impl Waiting<'_> {
    fn enter(waiters: &AtomicU32, limit: u32) -> Result<Waiting<'_>, Refused> {
        let waiting = Waiting(waiters);
        if waiters.fetch_add(1, Ordering::Relaxed) >= limit {
            return Err(Refused::Overloaded);
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
