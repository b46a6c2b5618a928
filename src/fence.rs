//! The fence itself: names, numbers and the state machine that decides about writes.
//!
//! Everything below this module is pure. It reads no clock, opens no socket and knows neither HTTP
//! nor SQL: times come in as values, effects go out as values. That is what makes the rules
//! testable one by one.

mod cell;
mod owner;
mod rank;
mod resource;
mod token;

pub use cell::{Cell, Grant, LeftGrant, Mark, Outcome, OverGrant, Step, Terms};
pub use owner::{InvalidOwner, Owner};
pub use rank::{Epoch, Rank};
pub use resource::{InvalidResource, Resource};
pub use token::{InvalidToken, Token};
