//! A key that tells one history of etcd from another.
//!
//! The gateways rewrite it by compare-and-swap, with a new nonce each time. An etcd that was restored
//! has an older nonce, or an older place for it in its revisions, or none.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};

use super::connection::{Connection, Found};
use super::layout::Keys;
use crate::coordinator::CoordinatorError;

/// Reads and writes the sentinels of stores.
#[derive(Debug)]
pub(in crate::coordinator) struct Sentinel {
    connection: Arc<Connection>,
    keys: Keys,
}

/// What etcd says of itself at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::coordinator) struct Snapshot {
    pub(in crate::coordinator) cluster_id: u64,
    pub(in crate::coordinator) revision: i64,
    /// The nonce, and the revision at which it was written.
    pub(in crate::coordinator) sentinel: Option<(String, i64)>,
}

impl Sentinel {
    pub(super) const fn new(connection: Arc<Connection>, keys: Keys) -> Sentinel {
        Sentinel { connection, keys }
    }

    /// To be read last in a transaction of which [`Snapshot::of`] is made.
    pub(in crate::coordinator) fn read(&self, store: &str) -> TxnOp {
        TxnOp::get(self.keys.sentinel(store), None)
    }

    pub(in crate::coordinator) async fn look(
        &self,
        store: &str,
    ) -> Result<Snapshot, CoordinatorError> {
        let mut found = self.connection.read(vec![self.read(store)]).await?;
        Ok(Snapshot::of(&mut found))
    }

    /// Writes a nonce over one that was written at this revision; 0: where there is none.
    pub(in crate::coordinator) async fn rewrite(
        &self,
        store: &str,
        revision: i64,
        nonce: &str,
    ) -> Result<(), CoordinatorError> {
        let key = self.keys.sentinel(store);
        let txn = Txn::new()
            .when([Compare::mod_revision(key.clone(), CompareOp::Equal, revision)])
            .and_then([TxnOp::put(key, nonce, None)]);
        // Whether it was written, or by whom, is seen by looking.
        self.connection.call(async |client| client.kv_client().txn(txn.clone()).await).await?;
        Ok(())
    }
}

impl Snapshot {
    /// Takes the sentinel, which was read last, out of what was found.
    pub(super) fn of(found: &mut Found) -> Snapshot {
        let kv = found.keys.pop().and_then(|mut keys| keys.pop());
        let sentinel =
            kv.map(|kv| (String::from_utf8_lossy(kv.value()).into_owned(), kv.mod_revision()));
        Snapshot { cluster_id: found.cluster_id, revision: found.revision, sentinel }
    }
}
