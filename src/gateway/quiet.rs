//! Wakes a connection of HTTP/1.1 once for a message, and not twice.
//!
//! hyper wakes a connection for each piece of a body that is taken from it, so that it reads the next one. It does so
//! after the last piece of an announced length as well, and then the connection's task runs for nothing: a twentieth of all
//! that the usual write costs in this process, and once more if its answer has a body. The wake comes while the piece is being
//! taken, on the same thread, which is how it is told from every other one. It is held back then, and goes on unless the
//! piece was known to be the last.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;

thread_local! {
    static IS_TAKING: Cell<bool> = const { Cell::new(false) };
    static HELD_BACK: Cell<Option<Waker>> = const { Cell::new(None) };
}

/// A connection's waker, above that of its task.
struct Quiet(Waker);

impl Wake for Quiet {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !IS_TAKING.get() {
            self.0.wake_by_ref();
        } else if let Some(other) = HELD_BACK.replace(Some(self.0.clone())) {
            other.wake();
        }
    }
}

/// The waker to poll a connection with that is worked on by this task.
pub(super) fn waker(task: &Waker) -> Waker {
    Waker::from(Arc::new(Quiet(task.clone())))
}

/// Works on a connection to its end.
pub(super) async fn work<C: Future + Unpin>(mut connection: C) -> C::Output {
    let mut own = None;
    std::future::poll_fn(|cx| {
        let own = own.get_or_insert_with(|| waker(cx.waker()));
        Pin::new(&mut connection).poll(&mut Context::from_waker(own))
    })
    .await
}

/// Takes a piece of a body.
pub(super) fn poll_frame(
    body: &mut Incoming,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
    let (frame, held_back) = holding_back(|| Pin::new(&mut *body).poll_frame(cx));
    if let Some(waker) = held_back {
        let is_last = matches!(frame, Poll::Ready(Some(Ok(_)))) && body.is_end_stream();
        if !is_last {
            waker.wake();
        }
    }
    frame
}

/// Does something, and tells whom of the connections that would have woken on this thread.
fn holding_back<T>(act: impl FnOnce() -> T) -> (T, Option<Waker>) {
    /// Also if it panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            IS_TAKING.set(false);
            HELD_BACK.take();
        }
    }
    IS_TAKING.set(true);
    let _end = End;
    let done = act();
    (done, HELD_BACK.take())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::gateway::testing::Wakes;

    #[test]
    fn only_what_wakes_in_between_and_on_this_thread_is_held_back() {
        let (wakes, task) = Wakes::new();
        let waker = waker(&task);
        waker.wake_by_ref();
        assert_eq!(wakes.count(), 1);
        let ((), held_back) = holding_back(|| waker.wake_by_ref());
        assert_eq!(wakes.count(), 1);
        held_back.expect("it was to be woken").wake();
        assert_eq!(wakes.count(), 2);
        assert!(holding_back(|| ()).1.is_none());
        // Another thread's is another one's.
        let woken_elsewhere = || {
            std::thread::scope(|scope| scope.spawn(|| waker.wake_by_ref()).join().unwrap());
        };
        assert!(holding_back(woken_elsewhere).1.is_none());
        assert_eq!(wakes.count(), 3);
        let panicked = catch_unwind(AssertUnwindSafe(|| holding_back(|| panic!("on purpose"))));
        assert!(panicked.is_err());
        waker.wake();
        assert_eq!(wakes.count(), 4);
    }
}
