//! TLS to an upstream.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;

use super::live::Files;
use super::{H2, HTTP_1_1, TlsError, files};

/// What TLS to an upstream is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The name that the upstream's certificate has to have.
    pub server_name: ServerName<'static>,
    /// The authorities that may have signed it (PEM); `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The gateway's own certificate, if the upstream wants one.
    pub identity: Option<KeyPair>,
    /// Whether HTTP/2 is asked for, and nothing else; else HTTP/1.1.
    pub http2: bool,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate, followed by those that lead to its authority (PEM).
    pub cert_file: PathBuf,
    /// The key that belongs to it (PEM).
    pub key_file: PathBuf,
}

impl Files for ClientFiles {
    type Config = ClientConfig;

    fn paths(&self) -> Vec<&Path> {
        let pair = self.identity.iter().flat_map(|pair| [&pair.cert_file, &pair.key_file]);
        pair.chain(&self.ca_file).map(PathBuf::as_path).collect()
    }

    fn build(&self, contents: &[Vec<u8>]) -> Result<(ClientConfig, Option<i64>), TlsError> {
        let mut contents = contents.iter().map(Vec::as_slice);
        let mut next = || contents.next().unwrap_or_default();
        let key = match &self.identity {
            Some(pair) => {
                Some(files::certified((&pair.cert_file, next()), (&pair.key_file, next()))?)
            }
            None => None,
        };
        let roots = match &self.ca_file {
            Some(file) => files::authorities(file, next())?,
            None => files::authorities_of_the_system()?,
        };
        let builder = ClientConfig::builder_with_provider(files::provider())
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .map_err(|error| TlsError::Together(error.to_string()))?
            .with_root_certificates(roots);
        let expiry = key.as_deref().and_then(files::expiry);
        let mut config = match key {
            Some(key) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.push(if self.http2 { H2 } else { HTTP_1_1 }.to_vec());
        Ok((config, expiry))
    }
}
