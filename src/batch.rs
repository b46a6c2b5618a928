//! Calls that arrive while others are under way are answered together by the next one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

const QUEUE_CALLS: usize = 4096;
/// So long the next call waits for one with several keys, though there is another way: one large call costs less
/// than two small ones, and one that is stuck holds up nobody for longer.
const APART: Duration = Duration::from_millis(5);

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
    /// their order. It is asked again while at most `ways - 1` of its answers are under way, but beside one
    /// for several keys not at once.
    pub(crate) fn new<F>(
        tasks: &TaskTracker,
        limit: usize,
        ways: usize,
        answer_all: F,
    ) -> Batcher<K, V, E>
    where
        F: FnMut(Vec<K>) -> BoxFuture<'static, Result<Vec<V>, E>> + Send + 'static,
    {
        Batcher::with_calls_apart(tasks, limit, ways, APART, answer_all)
    }

    fn with_calls_apart<F>(
        tasks: &TaskTracker,
        limit: usize,
        ways: usize,
        apart: Duration,
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
                let are_several = keys.len() > 1;
                let answers = answer_all(keys);
                let (under_way, end) = oneshot::channel::<()>();
                for_answers.spawn(async move {
                    let answers = answers.await;
                    // Before the replies: the next call is under way while they are made use of.
                    drop((way, under_way));
                    reply_to(replies, answers);
                });
                if are_several && !apart.is_zero() {
                    let _ = timeout(apart, end).await;
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

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Mutex;

    use futures_util::FutureExt;
    use tokio::sync::Notify;

    use super::*;

    /// Calls as they began: how many keys, and what lets them end.
    type Begun = Arc<Mutex<Vec<(usize, Arc<Notify>)>>>;

    fn batcher(ways: usize, apart: Duration) -> (Arc<Batcher<usize, usize, Closed>>, Begun) {
        let begun = Begun::default();
        let for_calls = Arc::clone(&begun);
        let answer_all = move |keys: Vec<usize>| {
            let end = Arc::new(Notify::new());
            for_calls.lock().unwrap().push((keys.len(), Arc::clone(&end)));
            async move {
                end.notified().await;
                Ok(keys)
            }
            .boxed()
        };
        let tasks = TaskTracker::new();
        (Arc::new(Batcher::with_calls_apart(&tasks, 4, ways, apart, answer_all)), begun)
    }

    async fn ask(batcher: &Arc<Batcher<usize, usize, Closed>>, keys: Range<usize>) {
        for key in keys {
            let batcher = Arc::clone(batcher);
            tokio::spawn(async move { assert_eq!(batcher.call(key).await.unwrap(), key) });
        }
        settle().await;
    }

    /// All that can happen without anything from outside has happened then.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    async fn end(begun: &Begun, nth: usize) {
        begun.lock().unwrap()[nth].1.notify_one();
        settle().await;
    }

    fn sizes(begun: &Begun) -> Vec<usize> {
        begun.lock().unwrap().iter().map(|(keys, _)| *keys).collect()
    }

    #[tokio::test]
    async fn what_arrives_during_a_call_shares_the_next_one() {
        let (batcher, begun) = batcher(1, Duration::ZERO);
        ask(&batcher, 0..1).await;
        ask(&batcher, 1..7).await;
        assert_eq!(sizes(&begun), [1]);
        end(&begun, 0).await;
        assert_eq!(sizes(&begun), [1, 4], "four at the most");
        end(&begun, 1).await;
        assert_eq!(sizes(&begun), [1, 4, 2]);
    }

    #[tokio::test]
    async fn as_many_calls_are_under_way_as_there_are_ways() {
        let (batcher, begun) = batcher(2, Duration::ZERO);
        ask(&batcher, 0..1).await;
        ask(&batcher, 1..2).await;
        ask(&batcher, 2..5).await;
        assert_eq!(sizes(&begun), [1, 1]);
        end(&begun, 1).await;
        assert_eq!(sizes(&begun), [1, 1, 3], "whichever ends first makes way");
        ask(&batcher, 5..7).await;
        end(&begun, 0).await;
        assert_eq!(sizes(&begun), [1, 1, 3, 2], "one that takes long holds up none");
    }

    #[tokio::test]
    async fn no_call_begins_beside_one_for_several_until_it_takes_long() {
        let (batcher, begun) = batcher(2, Duration::MAX);
        ask(&batcher, 0..1).await;
        ask(&batcher, 1..4).await;
        end(&begun, 0).await;
        ask(&batcher, 4..6).await;
        assert_eq!(sizes(&begun), [1, 3], "there is a way, and it is not taken");
        end(&begun, 1).await;
        assert_eq!(sizes(&begun), [1, 3, 2]);
    }

    #[tokio::test]
    async fn a_call_that_panics_takes_no_other_with_it() {
        let batcher: Batcher<usize, usize, Closed> =
            Batcher::new(&TaskTracker::new(), 4, 1, |keys: Vec<usize>| {
                async move {
                    assert_ne!(keys, [0], "as this test wants it");
                    Ok(keys)
                }
                .boxed()
            });
        assert!(batcher.call(0).await.is_err());
        assert_eq!(batcher.call(1).await.unwrap(), 1);
    }
}
