//! One question to one of the gateway's own APIs: over plain HTTP/1.1, or over TLS.
//!
//! Every question is bounded in time and its answer in size. Connections are not reused: a renewal
//! is rare, and one that is sent on a connection which died unseen would cost part of the TTL. The
//! files of TLS are looked at before each, so that a certificate that was renewed is taken up; one
//! that is of no use meanwhile leaves the one before it in use, and so does not end a lease.
//!
//! Deliberately absent: retries (who retries must know a deadline; see
//! [`HeldLease`](super::HeldLease)), redirects, and proxies from the environment. It is not
//! `reqwest` because that one's TLS comes either with another library of cryptography than the
//! gateway's, or with none, and then every `reqwest::Client::new()` of a program with this library
//! in it would panic.

mod stream;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prometheus::Registry;
use rustls::pki_types::ServerName;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::stream::Stream;
use super::token_file::TokenFile;
use crate::tls::{ClientFiles, ClientTls, KeyPair, TlsMetrics};

/// For a look at the files, which are usually there at once.
const FILES_WITHIN: Duration = Duration::from_millis(500);
/// For the connection and for TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What TLS to a gateway is made of, where the address begins with `https://`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authorities that may have signed the gateway's certificate (PEM); `None`: those that
    /// the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate to be known by, if the gateway wants one.
    pub identity: Option<KeyPair>,
}

/// A client of one address. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ApiClient {
    host: String,
    port: u16,
    /// `host:port`, as it is sent.
    authority: HeaderValue,
    /// What all paths begin with, without a slash at its end.
    prefix: String,
    tls: Option<Arc<ClientTls>>,
    token: Option<TokenFile>,
    /// Who looks at the files, at most one at a time.
    looking: Arc<Semaphore>,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum NoAnswer {
    /// The gateway cannot have seen the question.
    NotSent(String),
    /// It may have.
    Broken(String),
    /// It is longer than any that was asked for.
    TooLong,
}

impl ApiClient {
    /// # Errors
    /// Says what is wrong with `base`, unlike in `example`, or with the files.
    pub(crate) fn new(base: &str, example: &str, files: &TlsFiles) -> Result<ApiClient, String> {
        let wrong = |why: &str| format!("{base:?} {why}; give an address such as {example}");
        let url = reqwest::Url::parse(base)
            .map_err(|error| wrong(&format!("is no address ({error})")))?;
        let is_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("begins with neither http:// nor https://")),
        };
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("has a query or a fragment"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            // Without the text: it holds a password.
            return Err(format!("no user can stand in the address; give one such as {example}"));
        }
        if !is_tls && *files != TlsFiles::default() {
            return Err(format!("certificates are for https://, and {base:?} is not"));
        }
        let host = url.host_str().ok_or_else(|| wrong("has no host"))?;
        let port = url.port_or_known_default().ok_or_else(|| wrong("has no port"))?;
        let authority = HeaderValue::from_str(&format!("{host}:{port}"))
            .map_err(|_| wrong("has no usable host"))?;
        // An address of IPv6 stands in brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = is_tls.then(|| open(&host, files)).transpose()?;
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(ApiClient {
            host,
            port,
            authority,
            prefix,
            tls,
            token: None,
            looking: Arc::new(Semaphore::new(1)),
        })
    }

    /// The same, known by a bearer token.
    pub(crate) fn with_token(self, token: TokenFile) -> ApiClient {
        ApiClient { token: Some(token), ..self }
    }

    /// Sends `body` to `path`, and waits for the answer for up to `within` once it is connected.
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// See [`NoAnswer`]. An answer that refuses is none.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<(StatusCode, Vec<u8>), NoAnswer> {
        self.look_at_files().await;
        let request = self.request(method, path, body)?;
        let stream = timeout(CONNECT_TIMEOUT, self.connect()).await;
        let stream = stream
            .map_err(|_| NoAnswer::NotSent(format!("connecting took {CONNECT_TIMEOUT:?}")))?
            .map_err(NoAnswer::NotSent)?;
        timeout(within, exchange(stream, request))
            .await
            .map_err(|_| NoAnswer::Broken(format!("there was no answer within {within:?}")))?
    }

    /// Takes over what has changed in them. On a thread of its own, and not for long: whoever asks may have to end
    /// work before its lease does, and a file may be on a network that is down.
    async fn look_at_files(&self) {
        let (token, tls) = (self.token.clone(), self.tls.clone());
        if token.is_none() && tls.is_none() {
            return;
        }
        let Ok(turn) = Arc::clone(&self.looking).try_acquire_owned() else { return };
        let look = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            if let Some(token) = token {
                token.reload();
            }
            if let Some(tls) = tls {
                tls.reload();
            }
        });
        // What was in them before does until it is through.
        let _ = timeout(FILES_WITHIN, look).await;
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, NoAnswer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.field());
        }
        let request = request.body(Full::new(body.into()));
        request.map_err(|error| NoAnswer::NotSent(error.to_string()))
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let plain = stream::connect(&self.host, self.port, CONNECT_TIMEOUT)
            .await
            .map_err(|error| format!("no connection to {}:{}: {error}", self.host, self.port))?;
        let Some(tls) = &self.tls else { return Ok(Box::new(plain)) };
        let name = tls.files().server_name.clone();
        let secured = tokio_rustls::TlsConnector::from(tls.current()).connect(name, plain).await;
        let secured = secured.map_err(|error| {
            let trusted = match &tls.files().ca_file {
                Some(file) => format!("those in {}", file.display()),
                None => "the system's".to_owned(),
            };
            format!("no TLS with {}: {error} (the authorities are {trusted})", self.host)
        })?;
        Ok(Box::new(secured))
    }
}

/// Without the token and what is in the files.
impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient")
            .field("authority", &self.authority)
            .field("tls", &self.tls.as_ref().map(|tls| tls.files()))
            .finish_non_exhaustive()
    }
}

fn open(host: &str, files: &TlsFiles) -> Result<Arc<ClientTls>, String> {
    let server_name = ServerName::try_from(host.to_owned())
        .map_err(|_| format!("no certificate can have the name {host:?}"))?;
    let TlsFiles { ca_file, identity } = files.clone();
    let files = ClientFiles { server_name, ca_file, identity, http2: false };
    // Nobody asks a worker for them.
    let metrics = TlsMetrics::register(&Registry::new()).map_err(|error| error.to_string())?;
    ClientTls::open("gateway", files, &metrics).map(Arc::new).map_err(|error| error.to_string())
}

async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Vec<u8>), NoAnswer> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| NoAnswer::NotSent(chain(&error)))?;
    let answer = async move {
        let answer = sender.try_send_request(request).await.map_err(|mut error| {
            let reason = chain(error.error());
            // A request that comes back was never taken by the connection.
            match error.take_message() {
                Some(_) => NoAnswer::NotSent(reason),
                None => NoAnswer::Broken(reason),
            }
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => NoAnswer::TooLong,
            false => NoAnswer::Broken(chain(&*error)),
        })?;
        Ok((status, body.to_bytes().into()))
    };
    // What goes wrong with the connection is told to whoever waits for the answer.
    let driven = async { (connection.await, std::future::pending::<()>().await) };
    tokio::select! {
        biased;
        answer = answer => answer,
        _ = driven => Err(NoAnswer::Broken("the connection is over".to_owned())),
    }
}

/// An error and its sources in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(base: &str, files: &TlsFiles) -> Result<ApiClient, String> {
        ApiClient::new(base, "http://127.0.0.1:8081", files)
    }

    #[test]
    fn addresses_are_read_as_they_are_meant() {
        for (base, expected) in [
            ("http://127.0.0.1:8081", ("127.0.0.1", 8081, "127.0.0.1:8081", "", false)),
            ("http://[::1]/", ("::1", 80, "[::1]:80", "", false)),
            (
                "https://Gate.example/leases/",
                ("gate.example", 443, "gate.example:443", "/leases", true),
            ),
        ] {
            let client = client(base, &TlsFiles::default()).unwrap();
            let authority = client.authority.to_str().unwrap();
            let is_tls = client.tls.is_some();
            let read = (&*client.host, client.port, authority, &*client.prefix, is_tls);
            assert_eq!(read, expected, "{base}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_no_password_is_told() {
        for wrong in ["", "gate:80", "ftp://gate", "http://gate?x", "http://gate#x", "https://"] {
            let why = client(wrong, &TlsFiles::default()).unwrap_err();
            assert!(why.contains("http://127.0.0.1:8081"), "{wrong}: {why}");
        }
        let why = client("http://me:secret@gate", &TlsFiles::default()).unwrap_err();
        assert!(why.contains("user") && !why.contains("secret"), "{why}");
        let files = TlsFiles { ca_file: Some("/nowhere".into()), identity: None };
        let why = client("http://gate", &files).unwrap_err();
        assert!(why.contains("certificates are for https://"), "{why}");
        let why = client("https://gate", &files).unwrap_err();
        assert!(why.contains("/nowhere cannot be read"), "{why}");
    }
}
