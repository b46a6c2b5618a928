//! An authority of the test's own, and certificates that it signs.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// An authority, and a directory for what it signs.
pub struct Authority {
    pub dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in files.
#[derive(Clone, Debug)]
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new() -> Authority {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of a test");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("sound parameters");
        fs::write(dir.path().join("ca.pem"), issuer.pem()).expect("a writable directory");
        Authority { dir, issuer }
    }

    /// Where its own certificate is.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Signs a certificate with a common name for `localhost` and 127.0.0.1, into files of that name.
    pub fn sign(&self, name: &str) -> Pair {
        let pair = Pair {
            cert: self.dir.path().join(format!("{name}.crt")),
            key: self.dir.path().join(format!("{name}.key")),
        };
        self.sign_into(&pair, name);
        pair
    }

    /// Signs a new one, into files that may be there already.
    pub fn sign_into(&self, pair: &Pair, name: &str) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("sound names");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("sound parameters");
        // The key first: what reads them in between must notice.
        fs::write(&pair.key, key.serialize_pem()).expect("a writable directory");
        fs::write(&pair.cert, certificate.pem()).expect("a writable directory");
    }
}

impl Pair {
    /// The keys of `[listen]` that give a listener this certificate.
    pub fn listen(&self, listener: &str) -> String {
        let (cert, key) = (self.cert.display(), self.key.display());
        format!("{listener}_cert_file = \"{cert}\"\n{listener}_key_file = \"{key}\"\n")
    }
}
