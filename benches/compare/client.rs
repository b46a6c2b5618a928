//! A small HTTP client for what a load generator cannot do: a new token with each request.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long one answer may take. Far above any sound one: it is here so that nothing hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// One connection that is kept alive.
#[derive(Debug)]
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the sender; an error of the connection is the sender's answer, too.
        tokio::spawn(connection);
        Ok(Client { sender, host: address.to_string() })
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes)> {
        request.headers_mut().insert(header::HOST, self.host.parse()?);
        let exchange = async {
            self.sender.ready().await?;
            let answer = self.sender.send_request(request).await?;
            let status = answer.status();
            anyhow::Ok((status, answer.into_body().collect().await?.to_bytes()))
        };
        tokio::time::timeout(ANSWER_LIMIT, exchange)
            .await
            .with_context(|| format!("no answer from {} within {ANSWER_LIMIT:?}", self.host))?
    }
}

/// One request without a body on a connection of its own.
pub(crate) async fn once(
    address: SocketAddr,
    method: Method,
    path: &str,
) -> Result<(StatusCode, Bytes)> {
    let request = Request::builder().method(method).uri(path).body(Full::default())?;
    Client::connect(address).await?.send(request).await
}
