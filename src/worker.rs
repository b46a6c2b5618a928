//! What a worker needs: to hold a lease, to notice in time that it lost it, and to send the
//! lease's token with every write.
//!
//! [`LeaseClient`] speaks the lease API, [`HeldLease`] keeps one lease alive and says when it is
//! lost, [`StampProxy`] puts the token on requests of programs that know nothing of tokens, and
//! [`run`](run()) puts the three around a command: that is `fencegate run`.
//!
//! Invariant: whatever is called lost here stays lost, and it is called lost *before* the
//! coordinator may give the lease to somebody else, by a clock that counts suspension. That alone
//! protects nothing (a worker may be suspended just after it looked), which is why the gateway
//! judges every write again. Deliberately absent: judging tokens, and any knowledge of the gateway
//! beyond its address.

mod client;
mod group;
mod held;
mod report;
mod run;
mod signals;
mod stamp;
mod wire;

pub use client::{InvalidLeaseUrl, LeaseClient, LeaseError};
pub(crate) use client::{base_url, escape, path_segment};
pub use held::{HeldLease, LeaseView, Lost, Terms};
pub use run::{Job, OnHeld, exit, run};
pub use stamp::{Gateway, InvalidGateway, StampProxy};
pub use wire::{Holder, Lease, LeasePage};
