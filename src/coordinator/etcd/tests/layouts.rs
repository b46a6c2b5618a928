//! The contract, in both layouts.

mod mutex {
    use super::super::*;

    contract::tests!(subject(Layout::Mutex));
}

mod key {
    use super::super::*;

    contract::tests!(subject(Layout::Key));
}
