//! The exit codes of the verbs, named after BSD's `sysexits.h`.

/// Flags or configuration are wrong.
pub(super) const USAGE: u8 = 64;
/// A server, a store or an address that is needed cannot be used.
pub(super) const UNAVAILABLE: u8 = 69;
