//! One SQLite file: the fence store of a single instance, and the home of the embedded
//! coordinator.
//!
//! Owned here: the connection, and with it the file. It is locked exclusively for as long as the
//! process lives, so that two gateways never share one file. All work goes through one task; what
//! arrives while a transaction is being made durable shares the next one (group commit).
//! Deliberately absent: a connection pool. SQLite has one writer, and with the file locked
//! exclusively one connection.

mod columns;
mod fences;
mod history;
mod open;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::{InstanceId, StoreError};
use crate::batch::Closed;
use crate::clock::Clock;
use crate::metrics::{Operation, StoreMetrics};

pub use fences::SqliteFences;
pub use open::OpenError;

/// Jobs that wait for the transaction under way; a caller beyond that waits for a place.
const QUEUE_JOBS: usize = 1024;
/// Jobs that share one transaction at the most.
const BATCH_JOBS: usize = 256;
/// Calls that share one statement at the most.
pub(crate) const BATCH_CALLS: usize = 512;

/// Work inside a transaction that it may share with other jobs.
#[async_trait]
trait Job: Send {
    async fn run(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error>;
    /// Called after the commit, or after the failure of any job of the transaction.
    fn finish(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A handle to the file. Cheap to clone; the file is closed when the last one is gone.
#[derive(Clone, Debug)]
pub struct Database {
    jobs: mpsc::Sender<Box<dyn Job>>,
    instance: InstanceId,
    clock: Clock,
    metrics: StoreMetrics,
}

impl Database {
    /// Opens or creates the file, migrates it, checks that it is durable, and takes a new
    /// instance number.
    ///
    /// # Errors
    /// Says what is wrong with the file and how to mend it.
    pub async fn open(
        path: &Path,
        clock: Clock,
        tasks: &TaskTracker,
        metrics: StoreMetrics,
    ) -> Result<Database, OpenError> {
        let (connection, instance) = open::open(path, clock).await?;
        let (jobs, queue) = mpsc::channel(QUEUE_JOBS);
        tasks.spawn(work(connection, queue));
        Ok(Database { jobs, instance: InstanceId::from_i64(instance), clock, metrics })
    }

    /// The number of this run, never given to another.
    #[must_use]
    pub const fn instance(&self) -> InstanceId {
        self.instance
    }

    /// Runs `work` in a transaction and answers after the commit. The work is done even if the
    /// caller stops waiting. It is timed as `operation`, the wait for its turn included.
    ///
    /// # Errors
    /// The transaction, or another one that shared it, failed; nothing or everything may be on
    /// disk.
    pub async fn call<T, F>(&self, operation: Operation, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>>
            + Send
            + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let (clock, metrics, began) = (self.clock, self.metrics.clone(), self.clock.now());
        let told = move |committed: Result<T, StoreError>| {
            metrics.done(operation, clock.now().since(began), committed.is_ok());
            // A caller that stopped waiting is no error: the work is done.
            let _ = reply.send(committed);
        };
        let call = Call { work: Some(work), result: None, told };
        self.jobs.send(Box::new(call)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

struct Call<F, T, R> {
    work: Option<F>,
    result: Option<T>,
    told: R,
}

#[async_trait]
impl<T, F, R> Job for Call<F, T, R>
where
    T: Send,
    R: FnOnce(Result<T, StoreError>) + Send,
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send,
{
    async fn run(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        if let Some(work) = self.work.take() {
            self.result = Some(work(connection).await?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, committed: Result<(), StoreError>) {
        let Call { result, told, .. } = *self;
        told(committed.and_then(|()| result.ok_or_else(closed)));
    }
}

async fn work(mut connection: SqliteConnection, mut queue: mpsc::Receiver<Box<dyn Job>>) {
    let mut batch = Vec::with_capacity(BATCH_JOBS);
    while queue.recv_many(&mut batch, BATCH_JOBS).await > 0 {
        let committed = transact(&mut connection, &mut batch).await.map_err(|error| {
            tracing::error!(%error, "the store did not commit");
            StoreError(Arc::from(error.to_string()))
        });
        for job in batch.drain(..) {
            job.finish(committed.clone());
        }
    }
    if let Err(error) = connection.close().await {
        tracing::warn!(%error, "closing the store");
    }
}

/// Statements of our own instead of sqlx's transaction: `SQLite` may have rolled back by itself when
/// a commit fails (disk full, I/O error), and sqlx would then count a transaction that is not there
/// and begin no other on this connection for ever.
async fn transact(
    connection: &mut SqliteConnection,
    batch: &mut [Box<dyn Job>],
) -> Result<(), sqlx::Error> {
    let done = run_all(connection, batch).await;
    if done.is_err()
        && let Err(error) = sqlx::query("ROLLBACK").execute(connection).await
    {
        tracing::debug!(%error, "nothing was left to roll back");
    }
    done
}

async fn run_all(
    connection: &mut SqliteConnection,
    batch: &mut [Box<dyn Job>],
) -> Result<(), sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    for job in batch {
        job.run(connection).await?;
    }
    sqlx::query("COMMIT").execute(connection).await?;
    Ok(())
}

impl From<Closed> for StoreError {
    fn from(_: Closed) -> StoreError {
        closed()
    }
}

fn closed() -> StoreError {
    StoreError(Arc::from("the store is closed"))
}

#[cfg(test)]
mod tests;
