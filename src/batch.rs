//! Calls that arrive while one is under way are answered together by the next one.

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

const QUEUE_CALLS: usize = 4096;

type Reply<V, E> = oneshot::Sender<Result<V, E>>;

/// Whoever answers has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed;

/// Turns many calls with one key each into few calls with many keys.
#[derive(Debug)]
pub(crate) struct Batcher<K, V, E> {
    calls: mpsc::Sender<(K, Reply<V, E>)>,
}

impl<K, V, E> Batcher<K, V, E>
where
    K: Send + 'static,
    V: Send + 'static,
    E: Clone + From<Closed> + Send + 'static,
{
    /// `answer_all` is given at most `limit` keys at a time, and must answer as many values, in
    /// their order.
    pub(crate) fn new<F>(tasks: &TaskTracker, limit: usize, mut answer_all: F) -> Batcher<K, V, E>
    where
        F: FnMut(Vec<K>) -> BoxFuture<'static, Result<Vec<V>, E>> + Send + 'static,
    {
        let (calls, mut queue) = mpsc::channel::<(K, Reply<V, E>)>(QUEUE_CALLS);
        tasks.spawn(async move {
            let mut batch = Vec::new();
            while queue.recv_many(&mut batch, limit).await > 0 {
                let (keys, replies): (Vec<K>, Vec<Reply<V, E>>) = batch.drain(..).unzip();
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
    pub(crate) async fn call(&self, key: K) -> Result<V, E> {
        let (reply, answer) = oneshot::channel();
        self.calls.send((key, reply)).await.map_err(|_| Closed)?;
        answer.await.map_err(|_| Closed)?
    }
}
