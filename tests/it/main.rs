//! Everything from outside: the real binary, and what reached the downstream.

#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::panic, reason = "that is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "a test measures with whatever clock it likes")]

mod access;
mod admin;
mod attacks;
mod bad_input;
mod bodies;
mod coordinator;
mod crash;
mod demo;
mod documentation;
mod durable;
mod exit_codes;
mod fight;
mod foreign;
mod forwarded;
mod handover;
mod http2_client;
mod http2_upstream;
mod http_page;
mod late_bytes;
mod leases;
mod limits;
mod metrics;
mod no_way_around;
mod observability;
mod observe;
mod readme;
mod reload;
mod rules;
mod run;
mod run_gateway;
mod samples;
#[path = "../servers.rs"]
mod servers;
mod several;
mod shutdown;
mod spellings;
mod start;
mod store;
mod support;
mod tls;
mod tls_upstream;
mod traces;
mod upstream;
mod worker;
