//! TLS of listeners and upstreams: what has to be there, and to fit together.

use std::fs;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair};

use super::{Given, SMALL, assert_lines};

/// Writes a certificate and its key.
fn pair(dir: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![format!("{name}.example")]).unwrap();
    fs::write(dir.join(format!("{name}.crt")), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

fn with_listen(dir: &Path, keys: &str) -> Given {
    Given::file(&format!("{SMALL}[listen]\n{}", keys.replace("DIR", &dir.display().to_string())))
}

fn with_upstream(dir: &Path, keys: &str) -> Given {
    let keys = keys.replace("DIR", &dir.display().to_string());
    Given::file(&format!("[[upstream]]\n{keys}\n[[route]]\npath = '/{{*rest}}'\n"))
}

#[test]
fn each_key_of_tls_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    pair(dir.path(), "a");
    let listen = "proxy_cert_file = 'DIR/a.crt'\nproxy_key_file = 'DIR/a.key'\n\
                  leases_cert_file = 'DIR/a.crt'\nleases_key_file = 'DIR/a.key'\n\
                  leases_client_ca_file = 'DIR/a.crt'\nleases_client_cert = 'optional'\n\
                  admin_cert_file = 'DIR/a.crt'\nadmin_key_file = 'DIR/a.key'\n\
                  admin_client_ca_file = 'DIR/a.crt'\n";
    let listen = with_listen(dir.path(), listen).loaded().config.listen;
    assert!(listen.proxy_tls.is_some_and(|tls| tls.http2 && tls.clients.is_none()));
    assert!(listen.leases_tls.unwrap().clients.is_some_and(|clients| !clients.required));
    assert!(listen.admin_tls.unwrap().clients.is_some_and(|clients| clients.required));

    let upstream = "url = 'https://127.0.0.1'\nca_file = 'DIR/a.crt'\nserver_name = 'a.example'\n\
                    cert_file = 'DIR/a.crt'\nkey_file = 'DIR/a.key'\n";
    let config = with_upstream(dir.path(), upstream).loaded().config;
    assert_eq!(config.upstreams[0].authority, "127.0.0.1:443");
    let tls = config.upstreams[0].tls.clone().unwrap();
    assert_eq!(tls.server_name.to_str(), "a.example");
    assert!(tls.ca_file.is_some() && tls.identity.is_some());
}

#[test]
fn what_does_not_fit_together_is_a_mistake_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    pair(dir.path(), "a");
    pair(dir.path(), "b");
    for (keys, line, words) in [
        ("proxy_cert_file = 'DIR/a.crt'", 7, "listen.proxy_key_file is missing; give both"),
        ("admin_key_file = 'DIR/a.key'", 7, "listen.admin_cert_file is missing; give both"),
        ("leases_client_ca_file = 'DIR/a.crt'", 7, "need TLS; set listen.leases_cert_file"),
        (
            "proxy_cert_file = 'DIR/a.crt'\nproxy_key_file = 'DIR/b.key'",
            7,
            "is another certificate's",
        ),
        ("proxy_cert_file = 'DIR/no'\nproxy_key_file = 'DIR/a.key'", 7, "cannot be read"),
        ("proxy_cert_file = 'DIR/a.key'\nproxy_key_file = 'DIR/a.key'", 7, "holds no certificate"),
        ("proxy_cert_file = 'DIR/a.crt'\nproxy_key_file = 'DIR/a.crt'", 7, "holds no private key"),
    ] {
        let mistakes = with_listen(dir.path(), keys).mistakes();
        assert_lines(&mistakes, &[(&format!("fencegate.toml:{line}"), words)]);
    }
    for (keys, line, words) in [
        ("url = 'http://a'\nca_file = 'DIR/a.crt'", 3, "TLS needs upstream.url"),
        ("url = 'https://a'\ncert_file = 'DIR/a.crt'", 3, "upstream.key_file is missing"),
        ("url = 'https://a'\nca_file = 'DIR/a.key'", 3, "holds no certificate"),
        ("url = 'https://a'\nserver_name = 'a b'", 3, "is no host name or IP address"),
    ] {
        let mistakes = with_upstream(dir.path(), keys).mistakes();
        assert_lines(&mistakes, &[(&format!("fencegate.toml:{line}"), words)]);
    }
}
