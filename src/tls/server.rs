//! TLS of a listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;

use super::live::Files;
use super::{H2, HTTP_1_1, TlsError, files};

/// Sessions that a client may take up again, of one listener.
const SESSIONS: usize = 4096;

/// What a listener's TLS is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate, followed by those that lead to its authority (PEM).
    pub cert_file: PathBuf,
    /// The key that belongs to it (PEM).
    pub key_file: PathBuf,
    /// Whose certificates clients show; `None`: they are not asked for any.
    pub clients: Option<ClientCertificates>,
    /// Whether HTTP/2 is offered by ALPN.
    pub http2: bool,
}

/// What is asked of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The authorities that sign theirs (PEM).
    pub ca_file: PathBuf,
    /// Whether a client without one is refused.
    pub required: bool,
}

impl Files for ServerFiles {
    type Config = ServerConfig;

    fn paths(&self) -> Vec<&Path> {
        let clients = self.clients.as_ref().map(|clients| clients.ca_file.as_path());
        [self.cert_file.as_path(), &self.key_file].into_iter().chain(clients).collect()
    }

    fn build(&self, contents: &[Vec<u8>]) -> Result<(ServerConfig, Option<i64>), TlsError> {
        let [cert, key, ca @ ..] = contents else { return Err(not_read()) };
        let key = files::certified((&self.cert_file, cert), (&self.key_file, key))?;
        let expiry = files::expiry(&key);
        let builder = ServerConfig::builder_with_provider(files::provider())
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .map_err(together)?;
        let builder = match (&self.clients, ca) {
            (Some(clients), [ca, ..]) => {
                let roots = Arc::new(files::authorities(&clients.ca_file, ca)?);
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots, files::provider());
                let verifier =
                    if clients.required { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().map_err(together)?)
            }
            (None, _) => builder.with_no_client_auth(),
            (Some(_), []) => return Err(not_read()),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        if self.http2 {
            config.alpn_protocols.push(H2.to_vec());
        }
        config.alpn_protocols.push(HTTP_1_1.to_vec());
        Ok((config, expiry))
    }
}

fn not_read() -> TlsError {
    TlsError::Together("not all of the files were read".into())
}

fn together(error: impl std::fmt::Display) -> TlsError {
    TlsError::Together(error.to_string())
}
