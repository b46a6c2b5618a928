//! How a command gets to a gateway, and is known there: never by what stands on its command line, which
//! everybody on the machine can read.

use std::path::PathBuf;

use crate::tls::KeyPair;
use crate::worker::{TlsFiles, TokenFile};

#[derive(Debug, clap::Args)]
pub(super) struct GatewayArgs {
    /// The file with the bearer token to be known by at the gateway
    #[arg(long, env = "FENCEGATE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// With https://: the certificates (PEM) that the gateway's own is signed by [default: the
    /// system's]
    #[arg(long, env = "FENCEGATE_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// With https://: the certificate (PEM) to be known by at the gateway
    #[arg(long, env = "FENCEGATE_CERT_FILE", value_name = "FILE")]
    cert_file: Option<PathBuf>,
    /// With https://: the private key of that (PEM)
    #[arg(long, env = "FENCEGATE_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl GatewayArgs {
    /// The token, if there is to be one, or what is wrong with its file.
    pub(super) fn token(&self) -> Result<Option<TokenFile>, String> {
        let file = self.token_file.as_deref().map(TokenFile::open).transpose();
        file.map_err(|error| error.to_string())
    }

    /// What TLS is made of.
    pub(super) fn files(&self) -> Result<TlsFiles, String> {
        let identity = match (&self.cert_file, &self.key_file) {
            (None, None) => None,
            (Some(cert_file), Some(key_file)) => {
                Some(KeyPair { cert_file: cert_file.clone(), key_file: key_file.clone() })
            }
            _ => return Err("give both --cert-file and --key-file, or neither".to_owned()),
        };
        Ok(TlsFiles { ca_file: self.ca_file.clone(), identity })
    }
}
