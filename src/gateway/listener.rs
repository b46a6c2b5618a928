//! Threads, and how connections get to them.
//!
//! One acceptor deals connections out to the threads in turn. Sockets that share the port
//! (`SO_REUSEPORT`) would balance by chance, and would let a second Fencegate with another store
//! take the same port unseen.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, HeadLimits};
use super::route::RouteTable;
use super::service::Worker;
use super::upstream::Upstream;
use crate::clock::Clock;
use crate::config::Config;
use crate::fences::Fences;
use crate::metrics::GatewayMetrics;
use crate::trace::TraceIds;

/// Connections on their way to a thread.
const HANDED_OVER: usize = 256;
/// After an accept failed for want of descriptors: trying again at once would only burn CPU.
const BREATH: Duration = Duration::from_millis(50);

/// For writes that were cut to be counted as in doubt.
const LAST_STEPS: Duration = Duration::from_secs(5);

/// A connection and its place within the bound.
type Dealt = (StdTcpStream, OwnedSemaphorePermit);

/// What a gateway is made of.
pub struct GatewayParts {
    /// The configuration.
    pub config: Arc<Config>,
    /// Admission.
    pub fences: Arc<Fences>,
    /// Time.
    pub clock: Clock,
    /// What is counted.
    pub metrics: GatewayMetrics,
}

/// The running threads.
pub struct Gateway {
    queues: Vec<mpsc::Sender<Dealt>>,
    limit: usize,
    places: Arc<Semaphore>,
    /// Closed when the last thread has ended.
    done: mpsc::Receiver<()>,
    closing: CancellationToken,
    abort: CancellationToken,
}

impl Gateway {
    /// Starts the threads. They serve what [`Gateway::accept`] deals them.
    ///
    /// # Errors
    /// A thread or its runtime cannot be made.
    pub fn start(parts: &GatewayParts) -> io::Result<Gateway> {
        let limit = parts.config.limits.connections;
        let (alive, done) = mpsc::channel(1);
        let mut gateway = Gateway {
            queues: Vec::new(),
            limit,
            places: Arc::new(Semaphore::new(limit)),
            done,
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
        };
        for number in 0..parts.config.listen.workers {
            let (queue, dealt) = mpsc::channel(HANDED_OVER);
            gateway.queues.push(queue);
            gateway.thread(number, parts, dealt, alive.clone())?;
        }
        Ok(gateway)
    }

    fn thread(
        &self,
        number: usize,
        parts: &GatewayParts,
        dealt: mpsc::Receiver<Dealt>,
        alive: mpsc::Sender<()>,
    ) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let limits = &parts.config.limits;
        let upstreams = parts
            .config
            .upstreams
            .iter()
            .map(|upstream| {
                Arc::new(Upstream::new(upstream, parts.clock, runtime.handle().clone()))
            })
            .collect();
        let worker = Arc::new(Worker {
            fences: Arc::clone(&parts.fences),
            // A table for each thread: counting references to shared routes would make the threads
            // wait for each other.
            routes: RouteTable::new(&parts.config, &parts.metrics).map_err(io::Error::other)?,
            upstreams,
            body_timeout: limits.body_timeout,
            clock: parts.clock,
            traces: TraceIds::new(),
            tasks: TaskTracker::new(),
            runtime: runtime.handle().clone(),
        });
        let head = HeadLimits {
            bytes: limits.head_bytes,
            fields: limits.head_fields,
            timeout: limits.head_timeout,
        };
        let (closing, abort) = (self.closing.clone(), self.abort.clone());
        std::thread::Builder::new().name(format!("proxy-{number}")).spawn(move || {
            runtime.block_on(work(worker, head, dealt, closing, abort));
            drop(runtime);
            drop(alive);
        })?;
        Ok(())
    }

    /// Accepts connections until [`Gateway::close`], then takes what the kernel has accepted already.
    pub async fn accept(&self, listener: TcpListener) {
        let mut next = 0;
        loop {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
            let accepted = tokio::select! {
                biased;
                accepted = listener.accept() => accepted,
                () = self.closing.cancelled() => return,
            };
            match accepted.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => {
                    let queue = &self.queues[next % self.queues.len()];
                    next += 1;
                    // A thread that is gone takes nothing; the client sees a closed connection.
                    let _ = queue.send((stream, place)).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    /// Client connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.limit - self.places.available_permits()
    }

    /// Ends [`Gateway::accept`], and every connection after the request in work.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Waits for requests in work, then cuts what is left of them.
    pub async fn finish(self, grace: Duration, fences: &Fences) {
        let Gateway { queues, mut done, abort, .. } = self;
        // A thread ends when nobody can deal it a connection any more and its last one is closed.
        drop(queues);
        if timeout(grace, done.recv()).await.is_ok() {
            return;
        }
        tracing::warn!("requests in flight were cut at the end of the grace");
        fences.cut_all();
        abort.cancel();
        if timeout(LAST_STEPS, done.recv()).await.is_err() {
            tracing::error!("a thread of the proxy listener did not end");
        }
    }
}

async fn work(
    worker: Arc<Worker>,
    head: HeadLimits,
    mut dealt: mpsc::Receiver<Dealt>,
    closing: CancellationToken,
    abort: CancellationToken,
) {
    let tasks = worker.tasks.clone();
    while let Some((stream, place)) = dealt.recv().await {
        let Ok(stream) = TcpStream::from_std(stream) else { continue };
        let (worker, closing, abort) = (Arc::clone(&worker), closing.clone(), abort.clone());
        tasks.spawn(async move {
            connection::serve(stream, worker, head, closing, abort).await;
            drop(place);
        });
    }
    tasks.close();
    tasks.wait().await;
}
