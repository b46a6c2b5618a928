//! The name of a write, and what it writes: `TOKEN-WORKER-SEQUENCE-BYTES`, over and over.

/// A write's name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WriteName {
    /// The worker's `FENCING_TOKEN`.
    pub token: u64,
    text: String,
    bytes: usize,
}

impl WriteName {
    pub(super) fn parse(text: &str) -> Option<WriteName> {
        let mut words = text.split('-');
        let token = words.next()?.parse().ok()?;
        let bytes = words.nth(2)?.parse().ok()?;
        words.next().is_none().then(|| WriteName { token, text: text.to_owned(), bytes })
    }

    /// The bytes that `yes NAME | head -c BYTES` gives.
    pub(super) fn content(&self) -> Vec<u8> {
        let line = format!("{}\n", self.text);
        line.bytes().cycle().take(self.bytes).collect()
    }
}
