//! Whom a client certificate names.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Names of one certificate beyond this are passed over.
const MOST_NAMES: usize = 64;

/// The names in a client certificate that was verified against the listener's `client_ca_file`.
///
/// It is among the extensions of every request on a connection whose client showed one, on the lease and admin
/// listeners; a request without it comes from a client that showed none, or over plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    names: Arc<[String]>,
}

impl PeerIdentity {
    /// Reads a verified certificate. One that names nobody gives an identity without names.
    #[must_use]
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> PeerIdentity {
        let names = X509Certificate::from_der(certificate)
            .map(|(_, certificate)| names(&certificate))
            .unwrap_or_default();
        PeerIdentity { names: names.into() }
    }

    /// Each with its kind, so that no kind can pass for another: `CN=worker-1` (the subject's common name),
    /// `DNS:host.example`, `URI:spiffe://example/worker`, `email:a@example`.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let common = certificate.subject().iter_common_name();
    let common = common.filter_map(|name| Some(format!("CN={}", name.as_str().ok()?)));
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.into_iter().flat_map(|names| &names.value.general_names);
    let alternative = alternative.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(format!("DNS:{name}")),
        GeneralName::URI(name) => Some(format!("URI:{name}")),
        GeneralName::RFC822Name(name) => Some(format!("email:{name}")),
        _ => None,
    });
    common
        .chain(alternative)
        // A name that is cut off at a NUL, or goes on over a line, could pass for another one.
        .filter(|name| !name.chars().any(char::is_control))
        .take(MOST_NAMES)
        .collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn every_name_comes_with_its_kind_and_one_with_a_control_character_not_at_all() {
        let mut params = CertificateParams::new(vec!["worker.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "DNS:other");
        let uri = "spiffe://example/worker".try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(uri));
        params.subject_alt_names.push(SanType::DnsName("a\0b".try_into().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();

        let identity = PeerIdentity::of(certificate.der());

        let expected = ["CN=DNS:other", "DNS:worker.example", "URI:spiffe://example/worker"];
        assert_eq!(identity.names(), expected);
    }
}
