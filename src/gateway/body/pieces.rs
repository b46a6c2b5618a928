//! What was read of a body before it is whole.
//!
//! What comes in one piece is kept as it came. Of several pieces there is a copy: each of them would keep the whole
//! buffer that it was read into, and a client that sends byte by byte would have thousands of these.

use bytes::Bytes;

/// See the module.
#[derive(Default)]
pub(super) struct Pieces {
    first: Bytes,
    copied: Vec<u8>,
}

impl Pieces {
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.copied.len()
    }

    pub(super) fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.copied.is_empty() {
            self.copied.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.copied.extend_from_slice(&data);
    }

    pub(super) fn whole(self) -> Option<Bytes> {
        let whole = if self.copied.is_empty() { self.first } else { self.copied.into() };
        (!whole.is_empty()).then_some(whole)
    }
}
