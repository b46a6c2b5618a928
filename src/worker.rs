//! What a worker needs: to hold a lease, to notice in time that it lost it, and to send the
//! lease's token with every write.
//!
//! [`Leases`] says where leases come from: the lease API of a gateway, etcd or PostgreSQL.
//! [`HeldLease`] keeps one lease alive and says when it is lost. [`Writes`] sends a write with its
//! token through a gateway and turns the gateway's refusals into errors; [`stamp`](stamp()) and
//! [`Refusal::read`] are the two halves of that for other HTTP clients.
//!
//! ```no_run
//! use std::time::Duration;
//! use fencegate::{clock::Clock, worker::{HeldLease, Leases, Terms}};
//!
//! # async fn work() -> Result<(), Box<dyn std::error::Error>> {
//! let leases = Leases::api("http://127.0.0.1:8081")?;
//! let terms = Terms::new("/reports/may".parse()?, "worker-7".parse()?);
//! let held = HeldLease::acquire(&leases, Clock::new(), &terms).await?;
//!
//! let http = reqwest::Client::new();
//! let writes = held.writes(&http);
//! let put = http.put("http://127.0.0.1:8080/reports/may").body("as of today").build()?;
//! tokio::select! {
//!     answer = writes.send(put) => match answer {
//!         Ok(answer) => println!("the API says {}", answer.status()),
//!         // Another worker has taken over, for example: never send it again.
//!         Err(error) if error.ends_the_work() => return Err(error.into()),
//!         Err(error) => match error.retry_after() {
//!             Some(pause) => println!("nothing was written; try again in {pause:?}"),
//!             None => println!("the write may have happened: {:?}", error.outcome()),
//!         },
//!     },
//!     // Before the lease's time is over.
//!     lost = held.lost() => println!("stopped: {lost}"),
//! }
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! For programs that know nothing of tokens there is [`StampProxy`], which puts them on what is sent
//! through it, and [`run`](run()), which puts all of it around a command: that is `fencegate run`.
//!
//! Invariant: whatever is called lost here stays lost, and it is called lost *before* the
//! coordinator may give the lease to somebody else, by a clock that counts suspension. That alone
//! protects nothing (a worker may be suspended just after it looked), which is why the gateway
//! judges every write again. Deliberately absent: judging tokens, and any knowledge of the gateway
//! beyond its address and its answers.

mod api;
mod client;
mod group;
mod held;
mod leases;
mod refusal;
mod report;
mod run;
mod signals;
mod stamp;
mod token_file;
mod token_header;
mod wire;
mod writes;

pub use api::TlsFiles;
pub(crate) use api::{ApiClient, NoAnswer};
pub use client::{InvalidLeaseUrl, LeaseClient, LeaseError};
pub(crate) use client::{escape, path_segment};
pub use held::{HeldLease, LeaseView, Lost, Terms};
pub use leases::Leases;
pub use refusal::Refusal;
pub use run::{Job, OnHeld, exit, run};
pub use stamp::{Gateway, InvalidGateway, StampProxy};
pub use token_file::{InvalidTokenFile, TokenFile};
pub use token_header::{FENCING_TOKEN, stamp};
pub use wire::{Holder, Lease, LeasePage};
pub use writes::{WriteError, Writes};
