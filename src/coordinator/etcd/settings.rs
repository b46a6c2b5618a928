//! What a coordinator on etcd has to be told. Passwords and keys do not show in `Debug`.

use std::fmt;

use etcd_client::{Certificate, Identity, TlsOptions};

/// Where leases are in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `<prefix>/<resource>/<etcd lease id>`, the lowest create revision holds: that of
    /// `concurrency.Mutex` and `etcdctl lock`.
    Mutex,
    /// `<prefix>/<resource>`, whoever created it holds: that of python-etcd3 and node's etcd3.
    Key,
}

/// How to reach etcd, and where it has the leases.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// `host:port` of each member; not empty.
    pub endpoints: Vec<String>,
    /// What all keys begin with, without a slash at the end.
    pub prefix: String,
    /// How leases are laid out below it.
    pub layout: Layout,
    /// Who to be, if etcd asks.
    pub user: Option<EtcdUser>,
    /// With TLS, if anything is here.
    pub tls: Option<EtcdTls>,
}

/// A user of etcd.
#[derive(Clone)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

/// How to know etcd, and how to be known by it.
#[derive(Clone)]
pub struct EtcdTls {
    /// Certificates that etcd's has to be signed by, PEM.
    pub ca: String,
    /// Our certificate and its private key, PEM.
    pub identity: Option<(String, String)>,
}

impl EtcdTls {
    pub(super) fn options(&self) -> TlsOptions {
        let options = TlsOptions::new().ca_certificate(Certificate::from_pem(&self.ca));
        match &self.identity {
            Some((certificate, key)) => options.identity(Identity::from_pem(certificate, key)),
            None => options,
        }
    }
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = self.identity.as_ref().map(|(certificate, _)| certificate);
        f.debug_struct("EtcdTls").field("ca", &self.ca).field("identity", &identity).finish()
    }
}
