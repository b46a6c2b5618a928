//! Interim answers (1xx) of an upstream on their way to the client (RFC 9110 §15.2).
//!
//! hyper's server has no means to send one. So they are written between hyper and the socket, at the only places where
//! nothing else is on its way there: after one answer's last byte and before the next one's first
//! ([`super::watched`]). Whoever gets no interim answer misses nothing but time; so one that has no such place is dropped.
//! `100` is left out: whether a client is to go on is said by the gateway alone. Clients of HTTP/1.0 do not know interim
//! answers, and hyper's HTTP/2 neither sends nor tells of one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, StatusCode};

use super::head;
use super::watch::Watch;

/// For those that are not being written yet; further ones are dropped.
const MOST_BYTES: usize = 16 * 1024;

/// Those on their way from an upstream's connection to the client's. Both are on one thread.
#[derive(Default)]
pub(super) struct Interim {
    /// A request is in work, and its own answer has not begun.
    is_open: AtomicBool,
    has_some: AtomicBool,
    heads: Mutex<Vec<u8>>,
}

/// Lets the client have the interim answers to its request.
pub(super) fn pass_on<B>(request: &mut Request<B>, watch: &Arc<Watch>) {
    let (watch, number) = (Arc::clone(watch), watch.requests());
    hyper::ext::on_informational(request, move |answer| {
        let is_meant = watch.requests() == number && answer.status() != StatusCode::CONTINUE;
        if is_meant && watch.interim.put(&to_bytes(answer.status(), answer.headers())) {
            watch.wake();
        }
    });
}

fn to_bytes(status: StatusCode, headers: &HeaderMap) -> Vec<u8> {
    let mut headers = headers.clone();
    head::strip(&mut headers);
    headers.remove(CONTENT_LENGTH);
    let reason = status.canonical_reason().unwrap_or_default();
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    for (name, value) in &headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

impl Interim {
    /// A request is in work from now on.
    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Its own answer begins.
    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::Relaxed);
    }

    pub(super) fn put(&self, head: &[u8]) -> bool {
        let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken =
            self.is_open.load(Ordering::Relaxed) && heads.len() + head.len() <= MOST_BYTES;
        if is_taken {
            heads.extend_from_slice(head);
            self.has_some.store(true, Ordering::Relaxed);
        }
        is_taken
    }

    pub(super) fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self) -> Vec<u8> {
        self.has_some.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.heads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
