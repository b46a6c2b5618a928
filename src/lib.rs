#![doc = include_str!("../ARCHITECTURE.md")]

#[cfg(all(feature = "broken-drain", not(debug_assertions)))]
compile_error!(
    "the feature `broken-drain` makes a gateway that breaks its promise; it is for the chaos test alone, \
     and not for release builds"
);

pub mod access;
pub mod admin;
mod batch;
pub mod cli;
mod client_address;
pub mod clock;
pub mod config;
pub mod coordinator;
pub mod fence;
pub mod fences;
pub mod gateway;
pub mod http_server;
pub mod lease_api;
pub mod live_file;
pub mod metrics;
mod postgres_pool;
pub mod problem;
pub mod serve;
#[cfg(test)]
#[path = "../tests/servers.rs"]
mod servers;
pub mod spans;
pub mod store;
pub mod telemetry;
pub mod tls;
pub mod token_gauges;
pub mod trace;
mod unknown_length;
pub mod worker;
