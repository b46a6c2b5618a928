//! Calls that arrive while one is under way are answered together by the next one.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::StoreError;

const QUEUE_CALLS: usize = 4096;
const BATCH_CALLS: usize = 512;

type Reply<V> = oneshot::Sender<Result<V, StoreError>>;

/// Turns many calls with one key each into few calls with many keys.
#[derive(Debug)]
pub struct Batcher<K, V> {
    calls: mpsc::Sender<(K, Reply<V>)>,
}

impl<K: Send + 'static, V: Send + 'static> Batcher<K, V> {
    /// `answer_all` must answer as many values as it was given keys, in their order.
    pub fn new<F>(tasks: &TaskTracker, mut answer_all: F) -> Batcher<K, V>
    where
        F: FnMut(Vec<K>) -> BoxFuture<'static, Result<Vec<V>, StoreError>> + Send + 'static,
    {
        let (calls, mut queue) = mpsc::channel::<(K, Reply<V>)>(QUEUE_CALLS);
        tasks.spawn(async move {
            let mut batch = Vec::new();
            while queue.recv_many(&mut batch, BATCH_CALLS).await > 0 {
                let (keys, replies): (Vec<K>, Vec<Reply<V>>) = batch.drain(..).unzip();
                match answer_all(keys).await {
                    Ok(values) => {
                        for (reply, value) in replies.into_iter().zip(values) {
                            // Whoever stopped waiting needs no answer.
                            let _ = reply.send(Ok(value));
                        }
                    }
                    Err(error) => {
                        for reply in replies {
                            let _ = reply.send(Err(error.clone()));
                        }
                    }
                }
            }
        });
        Batcher { calls }
    }

    /// Asks for one key.
    ///
    /// # Errors
    /// The call that answered many at once failed.
    pub async fn call(&self, key: K) -> Result<V, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.calls.send((key, reply)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

fn closed() -> StoreError {
    StoreError(Arc::from("the store is closed"))
}
