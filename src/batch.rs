//! Calls that arrive while others are under way are answered together by the next one.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc, oneshot};
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
    /// their order. It is asked again while at most `ways - 1` of its answers are under way.
    pub(crate) fn new<F>(
        tasks: &TaskTracker,
        limit: usize,
        ways: usize,
        mut answer_all: F,
    ) -> Batcher<K, V, E>
    where
        F: FnMut(Vec<K>) -> BoxFuture<'static, Result<Vec<V>, E>> + Send + 'static,
    {
        let (calls, mut queue) = mpsc::channel::<(K, Reply<V, E>)>(QUEUE_CALLS);
        let ways = Arc::new(Semaphore::new(ways));
        let for_answers = tasks.clone();
        tasks.spawn(async move {
            let mut batch = Vec::new();
            while let Ok(way) = Arc::clone(&ways).acquire_owned().await
                && queue.recv_many(&mut batch, limit).await > 0
            {
                let (keys, replies): (Vec<K>, Vec<Reply<V, E>>) = batch.drain(..).unzip();
                let answers = answer_all(keys);
                for_answers.spawn(async move {
                    reply_to(replies, answers.await);
                    drop(way);
                });
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

fn reply_to<V, E: Clone>(replies: Vec<Reply<V, E>>, answers: Result<Vec<V>, E>) {
    // Whoever stopped waiting needs no answer.
    match answers {
        Ok(values) => {
            for (reply, value) in replies.into_iter().zip(values) {
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
