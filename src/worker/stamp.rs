//! The stamping proxy: a local HTTP proxy that puts the lease's token on whatever a program sends
//! through it.
//!
//! Invariants: it listens on the loopback address only; a token that the program sent itself never
//! passes; nothing is sent once the lease is lost. Method, target and body pass as they came, and
//! bodies are streamed. Deliberately absent: TLS (a token cannot be put inside), retries after a
//! byte was sent, timeouts on answers (the program has its own), caching.

mod forward;
mod headers;
mod target;

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::held::LeaseView;
use crate::problem::{Code, Problem};
use crate::unknown_length;
use forward::{Failure, Upstream};
use target::Refusal;

pub use target::{Gateway, InvalidGateway};

const CONNECTIONS_MAX: usize = 256;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 64 * 1024;
const AFTER_ACCEPT_FAILED: Duration = Duration::from_millis(50);

type Answer = Response<Either<Full<Bytes>, Incoming>>;

/// A running stamping proxy. Dropping it closes it.
#[derive(Debug)]
pub struct StampProxy {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct Stamp {
    lease: LeaseView,
    gateway: Option<Gateway>,
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl StampProxy {
    /// Listens on a free port of the loopback address, and stamps with `lease`'s token. Requests
    /// that name no host go to `gateway`.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn bind(lease: LeaseView, gateway: Option<Gateway>) -> io::Result<StampProxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let stamp = Stamp { lease, gateway, address, stop: stop.clone(), tasks: tasks.clone() };
        tasks.spawn(stop.clone().run_until_cancelled_owned(accept(listener, Arc::new(stamp))));
        Ok(StampProxy { address, stop, tasks })
    }

    /// Its address, as `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts every connection and waits until nothing more can be sent.
    pub async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for StampProxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(listener: TcpListener, stamp: Arc<Stamp>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = free.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (stop, tasks) = (stamp.stop.clone(), stamp.tasks.clone());
                let connection = serve(stream, stamp.clone());
                tasks.spawn(stop.run_until_cancelled_owned(async move {
                    connection.await;
                    drop(permit);
                }));
            }
            // Out of file descriptors, or a connection that was gone already.
            Err(_) => tokio::time::sleep(AFTER_ACCEPT_FAILED).await,
        }
    }
}

async fn serve(stream: TcpStream, stamp: Arc<Stamp>) {
    let _ = stream.set_nodelay(true);
    let upstream = Arc::new(Upstream::new(stamp.stop.clone(), stamp.tasks.clone()));
    let service = service_fn(move |request| {
        let (stamp, upstream) = (stamp.clone(), upstream.clone());
        async move { Ok::<_, Infallible>(answer(&stamp, &upstream, request).await) }
    });
    // An error here is the client's: it sent no HTTP, or went away.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(stamp: &Stamp, upstream: &Upstream, request: Request<Incoming>) -> Answer {
    if !stamp.lease.is_live() {
        return lost(stamp);
    }
    let (mut head, body) = request.into_parts();
    let target = target::read(&head, stamp.address, stamp.gateway.as_ref());
    let (authority, path) = match target {
        Ok(target) => target,
        Err(refusal) => return refused(&refusal),
    };
    head.uri = path.into();
    head.version = Version::HTTP_11;
    headers::remove_hop_by_hop(&mut head.headers);
    headers::stamp(&mut head.headers, stamp.lease.token(), &authority);
    unknown_length::announce(&mut head.headers, &body.size_hint());
    let request = Request::from_parts(head, body);
    match upstream.send(&authority, request, &stamp.lease).await {
        Ok(mut answer) => {
            *answer.version_mut() = Version::HTTP_11;
            headers::remove_hop_by_hop(answer.headers_mut());
            answer.map(Either::Right)
        }
        Err(Failure::LeaseLost) => lost(stamp),
        Err(Failure::Unreachable(why)) => {
            let detail = format!("no byte was sent to {authority}: {why}");
            problem(stamp, Problem::new(Code::UpstreamUnreachable, detail))
        }
        Err(Failure::OutcomeUnknown(why)) => {
            let detail = format!("{authority} broke off before it answered: {why}");
            problem(stamp, Problem::new(Code::UpstreamOutcomeUnknown, detail))
        }
    }
}

fn lost(stamp: &Stamp) -> Answer {
    let detail = format!(
        "the lease with token {} is lost; nothing was sent, and nothing will be",
        stamp.lease.token()
    );
    let lost = Problem::new(Code::LeaseLost, detail);
    problem(stamp, lost.with_status(StatusCode::SERVICE_UNAVAILABLE))
}

fn problem(stamp: &Stamp, mut problem: Problem) -> Answer {
    problem.resource = Some(stamp.lease.lease().resource.to_string());
    problem.to_response().map(|body| Either::Left(Full::new(body)))
}

fn refused(refusal: &Refusal) -> Answer {
    let status = match refusal {
        Refusal::Tls => StatusCode::NOT_IMPLEMENTED,
        Refusal::NoGateway | Refusal::BadAuthority => StatusCode::BAD_REQUEST,
    };
    let mut answer = Response::new(Either::Left(Full::from(format!("{refusal}\n"))));
    *answer.status_mut() = status;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer
}
