//! Everything from outside: the real binary, and what reached the downstream.

mod handover;
mod support;
