//! Threads, and how connections get to them.
//!
//! One acceptor deals connections out to the threads in turn. Sockets that share the port
//! (`SO_REUSEPORT`) would balance by chance, and would let a second Fencegate with another store
//! take the same port unseen.

use std::io;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, HeadLimits};
use super::door::Door;
use super::route::RouteTable;
use super::service::Worker;
use super::upstream::Upstream;
use super::vigil::Vigils;
use super::watch::Patience;
use crate::clock::Clock;
use crate::config::Config;
use crate::fences::Fences;
use crate::metrics::GatewayMetrics;
use crate::spans::Spans;
use crate::tls::{ClientTls, Handshakes};
use crate::trace::TraceIds;

/// Connections on their way to a thread.
const HANDED_OVER: usize = 256;
/// After an accept failed for want of descriptors: trying again at once would only burn CPU.
const BREATH: Duration = Duration::from_millis(50);

/// Connections that may still be taken when the gateway closes: as many as the kernel queues.
const LATE_CONNECTIONS: usize = 1024;
/// For writes that were cut to be counted as in doubt.
const LAST_STEPS: Duration = Duration::from_secs(2);

/// A connection, its other end, and its place within the bound.
type Dealt = (StdTcpStream, SocketAddr, OwnedSemaphorePermit);

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
    /// Takes the spans of decisions, where there is a collector.
    pub spans: Option<Spans>,
    /// TLS of the listener, if it has one.
    pub tls: Option<Handshakes>,
    /// TLS to the upstreams, by their position; `None` for plain text.
    pub upstream_tls: Vec<Option<Arc<ClientTls>>>,
}

/// The running threads.
pub struct Gateway {
    connections: Connections,
    /// Closed when the last thread has ended.
    done: mpsc::Receiver<()>,
    closing: CancellationToken,
    abort: CancellationToken,
}

/// Deals connections out to the threads.
pub struct Acceptor {
    /// A thread ends when nobody can deal it a connection any more and its last one is closed.
    queues: Vec<mpsc::Sender<Dealt>>,
    connections: Connections,
    closing: CancellationToken,
}

/// Counts client connections, and bounds them.
#[derive(Clone)]
pub struct Connections {
    limit: usize,
    places: Arc<Semaphore>,
}

impl Gateway {
    /// Starts the threads. They serve what the acceptor deals them.
    ///
    /// # Errors
    /// A thread or its runtime cannot be made.
    pub fn start(parts: &GatewayParts) -> io::Result<(Gateway, Acceptor)> {
        let limit = parts.config.limits.connections;
        let connections = Connections { limit, places: Arc::new(Semaphore::new(limit)) };
        let (alive, done) = mpsc::channel(1);
        let closing = CancellationToken::new();
        let gateway = Gateway {
            connections: connections.clone(),
            done,
            closing: closing.clone(),
            abort: CancellationToken::new(),
        };
        let mut queues = Vec::new();
        for number in 0..parts.config.listen.workers {
            let (queue, dealt) = mpsc::channel(HANDED_OVER);
            queues.push(queue);
            gateway.thread(number, parts, dealt, alive.clone())?;
        }
        Ok((gateway, Acceptor { queues, connections, closing }))
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
            .zip(&parts.upstream_tls)
            .map(|(upstream, tls)| {
                let runtime = runtime.handle().clone();
                Arc::new(Upstream::new(upstream, tls.clone(), parts.clock, runtime))
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
            spans: parts.spans.clone(),
            tasks: TaskTracker::new(),
            runtime: runtime.handle().clone(),
            forwarded: parts.config.listen.forwarded,
        });
        let head = HeadLimits {
            bytes: limits.head_bytes,
            fields: limits.head_fields,
            streams: limits.streams,
        };
        let door = door(parts);
        let vigils = Vigils::new(
            period(&parts.config),
            Patience { head: limits.head_timeout, answer: limits.body_timeout },
            self.closing.clone(),
            self.abort.clone(),
        );
        std::thread::Builder::new().name(format!("proxy-{number}")).spawn(move || {
            runtime.block_on(work(worker, door, head, dealt, &Arc::new(vigils)));
            drop(runtime);
            drop(alive);
        })?;
        Ok(())
    }

    /// Client connections that are open.
    #[must_use]
    pub fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// Ends [`Acceptor::accept`], and every connection after the request in work.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Waits for requests in work, then cuts what is left of them.
    pub async fn finish(mut self, grace: Duration, fences: &Fences) {
        if timeout(grace, self.done.recv()).await.is_ok() {
            return;
        }
        tracing::warn!("requests in flight were cut at the end of the grace");
        fences.cut_all();
        // Those whose writes were cut get to hear that their outcome is unknown.
        if timeout(LAST_STEPS, self.done.recv()).await.is_ok() {
            return;
        }
        self.abort.cancel();
        if timeout(LAST_STEPS, self.done.recv()).await.is_err() {
            tracing::error!("a thread of the proxy listener did not end");
        }
    }
}

impl Acceptor {
    /// Accepts connections until [`Gateway::close`], and then, up to a bound, what the kernel has
    /// accepted already.
    pub async fn accept(self, listener: TcpListener) {
        let mut accepted_late = 0;
        for queue in self.queues.iter().cycle() {
            let accepted = tokio::select! {
                biased;
                accepted = listener.accept() => accepted,
                () = self.closing.cancelled() => return,
            };
            accepted_late += usize::from(self.closing.is_cancelled());
            match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
                Ok(_) if accepted_late > LATE_CONNECTIONS => return,
                // One that finds no place before the end is closed; nothing of it was read.
                Ok((stream, peer)) => tokio::select! {
                    biased;
                    () = self.deal(queue, stream, peer) => {}
                    () = self.closing.cancelled() => {}
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    async fn deal(&self, queue: &mpsc::Sender<Dealt>, stream: StdTcpStream, peer: SocketAddr) {
        // Asked for only now, so that a place taken is a connection that is open.
        let place = Arc::clone(&self.connections.places).acquire_owned().await;
        if let Ok(place) = place {
            // A thread that is gone takes nothing; the client sees a closed connection.
            let _ = queue.send((stream, peer, place)).await;
        }
    }
}

impl Connections {
    /// How many are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.limit - self.places.available_permits()
    }
}

/// How often connections are looked at: often enough that the shortest limit is met within an eighth.
fn period(config: &Config) -> Duration {
    let timeouts = config.upstreams.iter().map(|upstream| upstream.timeout);
    let drains = config.routes.iter().map(|route| route.drain);
    let shortest = timeouts
        .chain(drains)
        .chain([config.limits.head_timeout, config.limits.body_timeout])
        .min()
        .unwrap_or_default();
    (shortest / 8).clamp(Duration::from_millis(25), Duration::from_millis(500))
}

fn door(parts: &GatewayParts) -> Arc<Door> {
    let listen = &parts.config.listen;
    Arc::new(Door {
        tls: parts.tls.clone(),
        proxy_protocol_from: listen.proxy_protocol_from.clone(),
        trusted_proxies: listen.trusted_proxies.clone(),
        limit: parts.config.limits.handshake_timeout,
    })
}

async fn work(
    worker: Arc<Worker>,
    door: Arc<Door>,
    head: HeadLimits,
    mut dealt: mpsc::Receiver<Dealt>,
    vigils: &Arc<Vigils>,
) {
    let tasks = worker.tasks.clone();
    let serving = async {
        while let Some((stream, peer, place)) = dealt.recv().await {
            let Ok(stream) = TcpStream::from_std(stream) else { continue };
            let (worker, vigils) = (Arc::clone(&worker), Arc::clone(vigils));
            let door = Arc::clone(&door);
            tasks.spawn(async move {
                if let Some(arrived) = door.enter(stream, peer, &vigils.closing).await {
                    connection::serve(arrived, worker, head, &vigils).await;
                }
                drop(place);
            });
        }
        tasks.close();
        tasks.wait().await;
    };
    tokio::select! {
        () = serving => {}
        () = vigils.watch(worker.clock, &worker.fences) => {}
        () = vigils.heed_the_end() => {}
    }
}
