//! What the tests are made of: the real gateway binary, a downstream that records what reached it
//! and does what it is told, and a client that sends exactly the bytes it is given.

pub mod certificates;
pub mod collector;
pub mod command;
pub mod curl;
pub mod downstream;
pub mod gateway;
pub mod h2;
pub mod http;
pub mod nginx;
pub mod small_disk;
pub mod store_file;
pub mod wire;

use std::time::{Duration, Instant};

/// Longer than anything takes on a loaded machine; reached only when a test fails.
pub const SOON: Duration = Duration::from_secs(30);

/// Waits until `level` holds.
#[track_caller]
pub fn wait_until(what: &str, mut level: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !level() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
