//! Reads what TLS is made of, and tries it: a file that is missing or of no use is a mistake of the configuration. Also
//! the names and networks that say who somebody is.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use rustls::pki_types::ServerName;

use super::mistakes::shown;
use super::reader::Reader;
use super::urls::UpstreamUrl;
use super::values;
use crate::tls::{ClientCertificates, ClientFiles, Files, KeyPair, ServerFiles, TlsError};

/// The keys of one listener.
#[derive(Clone, Copy)]
pub(super) struct ListenerKeys {
    cert: &'static str,
    key: &'static str,
    client_ca: &'static str,
    client_cert: &'static str,
    http2: bool,
}

/// Of the proxy, lease and admin listeners. The last two speak HTTP/1.1: what is asked of them is small and rare.
pub(super) const LISTENERS: [ListenerKeys; 3] = [
    ListenerKeys {
        cert: "proxy_cert_file",
        key: "proxy_key_file",
        client_ca: "proxy_client_ca_file",
        client_cert: "proxy_client_cert",
        http2: true,
    },
    ListenerKeys {
        cert: "leases_cert_file",
        key: "leases_key_file",
        client_ca: "leases_client_ca_file",
        client_cert: "leases_client_cert",
        http2: false,
    },
    ListenerKeys {
        cert: "admin_cert_file",
        key: "admin_key_file",
        client_ca: "admin_client_ca_file",
        client_cert: "admin_client_cert",
        http2: false,
    },
];

/// `None`: something could not be read. `Some(None)`: plain text.
pub(super) fn listener(from: &mut Reader<'_>, keys: ListenerKeys) -> Option<Option<ServerFiles>> {
    let [cert, key, client_ca] = [keys.cert, keys.key, keys.client_ca].map(|name| path(from, name));
    let choices = [("required", true), ("optional", false)];
    let required = from.read(keys.client_cert, values::choice(&choices));
    if !from.together(keys.cert, keys.key) {
        return None;
    }
    let (Some(cert), Some(key)) = (cert, key) else {
        if from.is_set(keys.client_ca) {
            let why = format!("client certificates need TLS; set listen.{}", keys.cert);
            from.wrong(keys.client_ca, &why);
            return None;
        }
        return Some(None);
    };
    let clients = match client_ca {
        Some(ca) => Some(ClientCertificates { ca_file: ca?, required: required? }),
        None => None,
    };
    let files = ServerFiles { cert_file: cert?, key_file: key?, clients, http2: keys.http2 };
    tried(from, keys.cert, files.check())?;
    Some(Some(files))
}

/// `None`: something could not be read. `Some(None)`: plain text.
pub(super) fn upstream(
    from: &mut Reader<'_>,
    url: Option<&UpstreamUrl>,
    http2: bool,
) -> Option<Option<ClientFiles>> {
    let [ca, cert, key] = ["ca_file", "cert_file", "key_file"].map(|name| path(from, name));
    let name = from.read_if_set("server_name", server_name);
    let is_whole = from.together("cert_file", "key_file");
    let url = url?;
    if !url.has_tls {
        let set =
            ["ca_file", "cert_file", "server_name"].into_iter().find(|name| from.is_set(name));
        if let Some(name) = set {
            from.wrong(name, "TLS needs upstream.url = \"https://…\"");
            return None;
        }
        return is_whole.then_some(None);
    }
    let server_name = match name {
        Some(name) => name?,
        // A host name that no certificate can have: an underscore.
        None => match server_name(url.host()) {
            Ok(name) => name,
            Err(why) => {
                from.wrong("url", &format!("{why}; set upstream.server_name"));
                return None;
            }
        },
    };
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some(KeyPair { cert_file: cert?, key_file: key? }),
        _ => None,
    };
    let ca_file = match ca {
        Some(ca) => Some(ca?),
        None => None,
    };
    if !is_whole {
        return None;
    }
    let files = ClientFiles { server_name, ca_file, identity, http2 };
    let place = if from.is_set("cert_file") { "cert_file" } else { "ca_file" };
    tried(from, place, files.check())?;
    Some(Some(files))
}

fn path(from: &mut Reader<'_>, name: &str) -> Option<Option<PathBuf>> {
    from.read_if_set(name, |text| values::text(text).map(PathBuf::from))
}

fn tried(from: &mut Reader<'_>, name: &str, tried: Result<(), TlsError>) -> Option<()> {
    tried.map_err(|error| from.wrong(name, &error.to_string())).ok()
}

/// `10.1.0.0/16`, or one address.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let one = text.parse::<IpAddr>().map(IpNet::from);
    let network = one.or_else(|_| text.parse::<IpNet>()).map_err(|_| {
        format!("{} is no network, which is an IP address and a prefix length", shown(text))
    })?;
    if network.trunc() == network {
        Ok(network)
    } else {
        Err(format!("{} has bits beyond its prefix; write {}", shown(text), network.trunc()))
    }
}

/// The name that a certificate has to have.
pub(super) fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| format!("{} is no host name or IP address", shown(text)))
}
