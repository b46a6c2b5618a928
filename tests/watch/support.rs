//! What `tests/it` is made of: here it makes the gateways do something that is worth a look.

#![allow(dead_code, reason = "shared with other tests, which use the rest")]

#[path = "../it/support/certificates.rs"]
pub mod certificates;
#[path = "../it/support/command.rs"]
pub mod command;
#[path = "../it/support/downstream.rs"]
pub mod downstream;
#[path = "../it/support/gateway.rs"]
pub mod gateway;
#[path = "../it/support/http.rs"]
pub mod http;
#[path = "../it/support/store_file.rs"]
pub mod store_file;
#[path = "../it/support/wire.rs"]
pub mod wire;

use std::time::{Duration, Instant};

/// Longer than anything takes on a loaded machine; reached only when a test fails.
pub const SOON: Duration = Duration::from_secs(120);

/// Waits until `level` holds.
#[track_caller]
pub fn wait_until(what: &str, mut level: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !level() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
