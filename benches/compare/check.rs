//! The check service that people put behind nginx's `auth_request`: the highest token of each
//! resource, in memory.
//!
//! It is here as a peer, and as cheap as such a service gets: one thread, kept-alive connections,
//! no storage. It has the faults of its kind: a mark is lost when it stops, and a write that it let
//! pass may reach the API after a newer one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::LocalSet;

use crate::machine::Cores;
use crate::process::{Server, free_address, pinned};

/// Starts the service as a process of its own, on the proxy's core.
pub(crate) fn start(cores: &Cores, directory: &Path) -> Result<(Server, SocketAddr)> {
    let address = free_address()?;
    let own = std::env::current_exe().context("finding this program")?;
    let mut command = pinned(&cores.proxy, &own);
    command.args(["--check-service", &address.to_string()]);
    Ok((Server::start("check-service", command, directory)?, address))
}

type Marks = Rc<RefCell<HashMap<String, u64>>>;

/// Is the service, until the process is ended.
pub(crate) fn serve(address: SocketAddr) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(async {
        let listener = TcpListener::bind(address).await.context("listening")?;
        let marks = Marks::default();
        loop {
            let (stream, _) = listener.accept().await.context("accepting")?;
            stream.set_nodelay(true)?;
            let marks = Rc::clone(&marks);
            let service = service_fn(move |request| {
                let answer = judge(&mut marks.borrow_mut(), &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::task::spawn_local(connection);
        }
    }))
}

fn judge<B>(marks: &mut HashMap<String, u64>, request: &Request<B>) -> Response<Empty<Bytes>> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let token = header("fencing-token").and_then(|token| token.parse::<u64>().ok());
    let verdict = match (header("x-original-uri"), token) {
        (Some(resource), Some(token)) => raise(marks, resource, token),
        _ => false,
    };
    let mut answer = Response::new(Empty::new());
    *answer.status_mut() = if verdict { StatusCode::NO_CONTENT } else { StatusCode::FORBIDDEN };
    answer
}

fn raise(marks: &mut HashMap<String, u64>, resource: &str, token: u64) -> bool {
    match marks.get_mut(resource) {
        Some(mark) if token < *mark => false,
        Some(mark) => {
            *mark = token;
            true
        }
        None => {
            marks.insert(resource.to_owned(), token);
            true
        }
    }
}
