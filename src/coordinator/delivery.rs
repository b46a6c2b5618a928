//! How work gets to its end, and its answer to the caller, whether that one stays or leaves; and how a granted
//! lease gets from the task that acquired it to the caller, or back.
//!
//! An acquisition runs in a task of its own, so that it cannot be dropped between the moment at
//! which a token is issued and the answer. Invariant: a lease is either with a caller that went on
//! with it, or it comes back here to be released; its token is then a gap that grants nothing.

use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::{Acquired, CoordinatorError, Lease};

/// Does `work` to its end even if the caller leaves: what was done to a lease has to be counted and told to
/// those who wait for it, and a connection that is left in the middle of a call is lost.
pub(super) async fn to_the_end<T: Send + 'static>(
    tasks: &TaskTracker,
    work: impl Future<Output = Result<T, CoordinatorError>> + Send + 'static,
) -> Result<T, CoordinatorError> {
    tasks.spawn(work).await.map_err(|error| {
        CoordinatorError::Unavailable(format!("its work was broken off: {error}"))
    })?
}

/// The answer, and the means to say that it has arrived. Dropping that, wherever the answer is on
/// its way, says that nobody has it.
type Answer = (Acquired, oneshot::Sender<()>);

/// The end of the task.
#[derive(Debug)]
pub(super) struct Sender(oneshot::Sender<Result<Answer, CoordinatorError>>);

/// The end of the caller.
#[derive(Debug)]
pub(super) struct Receiver(oneshot::Receiver<Result<Answer, CoordinatorError>>);

pub(super) fn channel() -> (Sender, Receiver) {
    let (sender, receiver) = oneshot::channel();
    (Sender(sender), Receiver(receiver))
}

impl Sender {
    /// Waits until the caller is gone.
    pub(super) async fn abandoned(&mut self) {
        self.0.closed().await;
    }

    /// Hands the answer over. `Some`: the lease that nobody took, to be released.
    pub(super) async fn deliver(
        self,
        acquired: Result<Acquired, CoordinatorError>,
    ) -> Option<Lease> {
        let issued = match &acquired {
            Ok(Acquired::Granted(lease)) => Some(lease.clone()),
            Ok(Acquired::Held(_)) | Err(_) => None,
        };
        let (arrived, arrival) = oneshot::channel();
        let sent = self.0.send(acquired.map(|acquired| (acquired, arrived))).is_ok();
        let lease = issued?;
        (!(sent && arrival.await.is_ok())).then_some(lease)
    }
}

impl Receiver {
    pub(super) async fn receive(self) -> Result<Acquired, CoordinatorError> {
        let broken_off =
            |_| CoordinatorError::Unavailable("the acquisition was broken off".to_owned());
        let (acquired, arrived) = self.0.await.map_err(broken_off)??;
        // Nothing may be awaited between this and the return, or the lease could be lost on the way.
        let _ = arrived.send(());
        Ok(acquired)
    }
}
