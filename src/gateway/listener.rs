//! Threads, and how connections get to them.
//!
//! One acceptor deals connections out to the threads in turn. Sockets that share the port
//! (`SO_REUSEPORT`) would balance by chance, and would let a second Fencegate with another store
//! take the same port unseen.

use std::io;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::client_stream::Unread;
use super::connection;
use super::load::Clients;
use super::reload::Reconfigure;
use super::threads::{Thread, Workshop};
use crate::clock::Clock;
use crate::config::Config;
use crate::fences::Fences;
use crate::metrics::{GatewayMetrics, LimitMetrics};
use crate::spans::Spans;
use crate::tls::{ClientTls, Handshakes};

/// Connections on their way to a thread.
const HANDED_OVER: usize = 256;
/// After an accept failed for want of descriptors: trying again at once would only burn CPU.
const BREATH: Duration = Duration::from_millis(50);

/// Connections that may still be taken when the gateway closes: as many as the kernel queues.
const LATE_CONNECTIONS: usize = 1024;
/// For writes that were cut to be counted as in doubt.
const LAST_STEPS: Duration = Duration::from_secs(2);

/// A connection on its way to a thread.
struct Dealt {
    stream: StdTcpStream,
    /// Its other end.
    peer: SocketAddr,
    /// `None`: it is one too many, and only to be told so.
    place: Option<Place>,
}

/// What a gateway is made of.
#[derive(Clone)]
pub struct GatewayParts {
    /// The configuration in use.
    pub config: Arc<Config>,
    /// Admission.
    pub fences: Arc<Fences>,
    /// Time.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Arc<GatewayMetrics>,
    /// How often limits were reached.
    pub limit_hits: LimitMetrics,
    /// Takes the spans of decisions, where there is a collector.
    pub spans: Option<Spans>,
    /// TLS of the listener, if it has one.
    pub tls: Option<Handshakes>,
    /// TLS to the upstreams, by their position; `None` for plain text.
    pub upstream_tls: Vec<Option<Arc<ClientTls>>>,
}

/// The running threads.
pub struct Gateway {
    core: Arc<Core>,
    /// Closed when the last thread has ended.
    done: mpsc::Receiver<()>,
    closing: CancellationToken,
    abort: CancellationToken,
}

/// What a new configuration changes.
pub(super) struct Core {
    pub(super) threads: Vec<Arc<Thread>>,
    pub(super) workshop: Mutex<Workshop>,
    pub(super) clients: Arc<Clients>,
    pub(super) connections: Connections,
}

/// Deals connections out to the threads.
pub struct Acceptor {
    /// A thread ends when nobody can deal it a connection any more and its last one is closed.
    queues: Vec<mpsc::Sender<Dealt>>,
    connections: Connections,
    closing: CancellationToken,
}

/// Counts client connections, and bounds them.
#[derive(Clone, Default)]
pub struct Connections(Arc<Count>);

#[derive(Default)]
struct Count {
    limit: AtomicUsize,
    open: AtomicUsize,
}

/// A connection's place within the bound.
struct Place(Arc<Count>);

impl Gateway {
    /// Starts the threads. They serve what the acceptor deals them.
    ///
    /// # Errors
    /// A thread or its runtime cannot be made.
    pub fn start(parts: GatewayParts) -> io::Result<(Gateway, Acceptor)> {
        let config = Arc::clone(&parts.config);
        let connections = Connections::default();
        connections.allow(config.limits.connections);
        parts.metrics.configure(&config, None);
        let (alive, done) = mpsc::channel(1);
        let (closing, abort) = (CancellationToken::new(), CancellationToken::new());
        let clients = Clients::new(parts.clock, config.limits.client_connections);
        let mut workshop = Workshop {
            parts,
            clients: Arc::clone(&clients),
            loads: Default::default(),
            former: Vec::new(),
        };
        workshop.open(&config);
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for number in 0..config.listen.workers {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let worker = workshop.first(&config, runtime.handle().clone())?;
            let thread = Arc::new(Thread::new(worker, closing.clone(), abort.clone()));
            let (queue, dealt) = mpsc::channel(HANDED_OVER);
            spawn(number, runtime, &thread, dealt, alive.clone())?;
            threads.push(thread);
            queues.push(queue);
        }
        let acceptor =
            Acceptor { queues, connections: connections.clone(), closing: closing.clone() };
        let workshop = Mutex::new(workshop);
        let core = Arc::new(Core { threads, workshop, clients, connections });
        Ok((Gateway { core, done, closing, abort }, acceptor))
    }

    /// Client connections that are open.
    #[must_use]
    pub fn connections(&self) -> Connections {
        self.core.connections.clone()
    }

    /// Takes new configurations over. To be dropped before [`Gateway::finish`].
    #[must_use]
    pub fn reconfigure(&self) -> Reconfigure {
        Reconfigure(Arc::clone(&self.core))
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
            let accepted = accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer)));
            match accepted {
                Ok(_) if accepted_late > LATE_CONNECTIONS => return,
                Ok((stream, peer)) => {
                    let dealt = Dealt { stream, peer, place: self.connections.enter() };
                    // One that does not reach its thread before the end is closed; nothing of it was read.
                    tokio::select! {
                        biased;
                        // A thread that is gone takes nothing; the client sees a closed connection.
                        _ = queue.send(dealt) => {}
                        () = self.closing.cancelled() => {}
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }
}

impl Connections {
    /// Lets so many be open from now on; none is closed.
    pub(super) fn allow(&self, limit: usize) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    fn enter(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.0));
        let open = self.0.open.fetch_add(1, Ordering::Relaxed);
        (open < self.0.limit.load(Ordering::Relaxed)).then_some(place)
    }

    /// How many are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn spawn(
    number: usize,
    runtime: Runtime,
    thread: &Arc<Thread>,
    dealt: mpsc::Receiver<Dealt>,
    alive: mpsc::Sender<()>,
) -> io::Result<()> {
    let thread = Arc::clone(thread);
    std::thread::Builder::new().name(format!("proxy-{number}")).spawn(move || {
        runtime.block_on(work(&thread, dealt));
        drop(runtime);
        drop(alive);
    })?;
    Ok(())
}

async fn work(thread: &Arc<Thread>, mut dealt: mpsc::Receiver<Dealt>) {
    // Not the worker itself, which is done with at the next configuration.
    let (tasks, clock, fences) = {
        let first = thread.current();
        (first.tasks.clone(), first.clock, Arc::clone(&first.fences))
    };
    let serving = async {
        while let Some(Dealt { stream, peer, place }) = dealt.recv().await {
            let Ok(stream) = TcpStream::from_std(stream) else { continue };
            let thread = Arc::clone(thread);
            let Some(place) = place else {
                let stream = Unread::new(stream, Vec::new());
                connection::turn_away(stream, &thread.current(), "limits.connections");
                continue;
            };
            tasks.spawn(async move {
                let received = {
                    let worker = thread.current();
                    worker.door.receive(stream, peer, &thread.vigils.closing).await
                };
                if let Some((stream, address)) = received {
                    connection::serve(stream, address, &thread).await;
                }
                drop(place);
            });
        }
        tasks.close();
        tasks.wait().await;
    };
    tokio::select! {
        () = serving => {}
        () = thread.vigils.watch(clock, &fences) => {}
        () = thread.vigils.heed_the_end() => {}
    }
}
