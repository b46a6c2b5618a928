//! Reads certificates and keys.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::TlsError;

/// No chain, key or list of authorities has more.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(super) fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| wrong(file, format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(wrong(file, "is larger than 4 MiB".into()));
    }
    Ok(bytes)
}

/// A certificate with its chain, and the key that belongs to it.
pub(super) fn certified(
    (cert_file, cert): (&Path, &[u8]),
    (key_file, key): (&Path, &[u8]),
) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(cert_file, cert)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
        wrong(
            key_file,
            match error {
                PemError::NoItemsFound => "holds no private key in PEM form".into(),
                error => format!("is no private key: {error}"),
            },
        )
    })?;
    let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| {
        let (cert, key) = (cert_file.display(), key_file.display());
        let why = match error {
            rustls::Error::InconsistentKeys(_) => "is another certificate's".to_owned(),
            error => format!("cannot be used: {error}"),
        };
        TlsError::Together(format!(
            "the key in {key} does not go with the certificate in {cert}: it {why}"
        ))
    })?;
    Ok(Arc::new(key))
}

/// Authorities that certificates are checked against.
pub(super) fn authorities(file: &Path, pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, pem)? {
        roots
            .add(certificate)
            .map_err(|error| wrong(file, format!("has a certificate of no use: {error}")))?;
    }
    Ok(roots)
}

/// Those that the system trusts.
pub(super) fn authorities_of_the_system() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why =
            "this system has no certificate authorities (Debian: ca-certificates); set ca_file";
        return Err(TlsError::Together(why.into()));
    }
    Ok(roots)
}

/// When a certificate ends, in seconds since 1970.
pub(super) fn expiry(key: &CertifiedKey) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(key.cert.first()?).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

fn certificates(file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(file, format!("is not PEM: {error}")))?;
    if chain.is_empty() {
        return Err(wrong(file, "holds no certificate in PEM form".into()));
    }
    Ok(chain)
}

fn wrong(file: &Path, why: String) -> TlsError {
    TlsError::File { file: file.to_owned(), why }
}
