//! Wakes a connection of HTTP/1.1 once for a request, and not twice.
//!
//! hyper wakes a client's connection for each piece of a request's body that is taken from it, so that it reads the
//! next one. It does so after the last piece as well, and then the connection's task runs for nothing: a twentieth of all
//! that the usual write costs in this process. The wake comes while the piece is being taken, on the same thread, which is how
//! it is told from every other one ([`taking`]). It is held back then, and whoever takes the piece decides on it.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Wake, Waker};

thread_local! {
    static HELD_BACK: Cell<State> = const { Cell::new(State::Nothing) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Every wake goes on.
    Nothing,
    /// A piece is being taken.
    Taking,
    /// The same, and there was a wake.
    Woken,
}

/// A connection's waker, above that of its task.
struct Quiet(Waker);

impl Wake for Quiet {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match HELD_BACK.get() {
            State::Nothing => self.0.wake_by_ref(),
            State::Taking | State::Woken => HELD_BACK.set(State::Woken),
        }
    }
}

/// The waker to poll a connection with that is worked on by this task.
pub(super) fn waker(task: &Waker) -> Waker {
    Waker::from(Arc::new(Quiet(task.clone())))
}

/// Takes a piece of a body; and whether the connection that it came on was to be woken.
pub(super) fn taking<T>(take: impl FnOnce() -> T) -> (T, bool) {
    /// Also if `take` panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            HELD_BACK.set(State::Nothing);
        }
    }
    HELD_BACK.set(State::Taking);
    let _end = End;
    let taken = take();
    (taken, HELD_BACK.get() == State::Woken)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_what_wakes_while_a_piece_is_taken_is_held_back() {
        let count = Arc::new(Count::default());
        let waker = waker(&Waker::from(Arc::clone(&count)));
        let wakes = || count.0.load(Ordering::Relaxed);
        waker.wake_by_ref();
        assert_eq!(wakes(), 1);
        assert_eq!(taking(|| waker.wake_by_ref()), ((), true));
        assert_eq!(taking(|| 7), (7, false));
        assert_eq!(wakes(), 1);
        // Another thread's is another one's.
        taking(|| std::thread::scope(|scope| scope.spawn(|| waker.wake_by_ref()).join().unwrap()));
        assert_eq!(wakes(), 2);
        let panicked = catch_unwind(AssertUnwindSafe(|| taking(|| panic!("on purpose"))));
        assert!(panicked.is_err());
        waker.wake();
        assert_eq!(wakes(), 3);
    }
}
