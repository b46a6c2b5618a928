//! The proxy listener: from a client's connection to the upstream and back.
//!
//! One thread per core, each with a runtime, a connection pool and all its connections to itself;
//! the fences are the only thing shared. A request goes head → route → resource → token → body →
//! admission → permit → forward, and what `forward` takes is the permit itself: no write reaches
//! an upstream of a fenced route without one.
//! Deliberately absent: any decision about fences (that is [`crate::fences`]), retries of a write
//! of which one byte may have been sent, and rewriting of request targets: what is judged is what is
//! forwarded, byte for byte.

mod authority;
mod body;
mod client;
mod client_stream;
mod connection;
mod credential;
mod destination;
mod door;
mod forward;
mod forwarded;
mod frames;
mod framing;
mod head;
mod http2;
mod interim;
mod last_words;
mod listener;
mod load;
mod method_claims;
mod preface;
mod pseudo_fields;
mod quiet;
mod refusal;
mod reload;
mod route;
mod sending;
mod service;
mod socket;
mod target;
#[cfg(test)]
mod testing;
mod threads;
mod token_header;
mod upload;
mod upstream;
mod upstream_http2;
mod upstream_stream;
mod vigil;
mod watch;
mod watched;

pub use listener::{Acceptor, Connections, Gateway, GatewayParts};
pub use reload::{Opened, Prepared, Reconfigure};
