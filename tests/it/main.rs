//! Everything from outside: the real binary, and what reached the downstream.

#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::panic, reason = "that is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "a test measures with whatever clock it likes")]

mod admin;
mod bad_input;
mod bodies;
mod crash;
mod demo;
mod fight;
mod handover;
mod leases;
mod no_way_around;
mod run;
mod run_gateway;
mod shutdown;
mod spellings;
mod start;
mod store;
mod support;
mod upstream;
