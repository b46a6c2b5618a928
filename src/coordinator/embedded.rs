//! The embedded coordinator.

/// Issues leases and tokens from the SQLite store.
#[derive(Debug)]
pub struct Embedded;
