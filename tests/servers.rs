//! Real servers for tests, on free ports of the loopback address, in temporary directories. Each
//! ends with its value, and with the thread that started it, so that none is left running.

#![allow(dead_code, reason = "not every test binary needs every server in every way")]
#![allow(clippy::panic, reason = "that is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "a test measures with whatever clock it likes")]

#[path = "servers/etcd.rs"]
pub(crate) mod etcd;
