//! One function per action: what has to be true for it, and what it changes. `None`: it cannot
//! happen now.

mod grants;
mod lease;
mod world;
mod write;
