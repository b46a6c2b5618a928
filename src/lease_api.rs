//! The lease API.
