//! What a worker needs.
