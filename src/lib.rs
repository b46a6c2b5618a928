#![doc = include_str!("../ARCHITECTURE.md")]

pub mod admin;
mod batch;
pub mod cli;
pub mod clock;
pub mod config;
pub mod coordinator;
pub mod fence;
pub mod fences;
pub mod gateway;
pub mod http_server;
pub mod lease_api;
pub mod metrics;
pub mod problem;
pub mod serve;
#[cfg(test)]
#[path = "../tests/servers.rs"]
mod servers;
pub mod store;
pub mod telemetry;
pub mod token_gauges;
pub mod trace;
pub mod worker;
