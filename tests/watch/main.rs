//! What people watch gateways with: dashboards whose every query is asked of a real Prometheus, which scraped real
//! gateways to which everything that the dashboards are about has happened.

#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::panic, reason = "that is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "a test measures with whatever clock it likes")]

mod boards;
mod cast;
mod events;
mod load;
mod prometheus;
mod repeater;
mod runbooks;
#[path = "../servers.rs"]
mod servers;
mod shown;
mod support;
