//! Reads `[coordinator]`: which one, and how to reach it and how to be known by it.

use std::path::Path;

use super::file;
use super::keys::{Section, Slot};
use super::mistakes::{Origin, shown};
use super::reader::Reader;
use super::settings::Settings;
use super::urls::{self, CoordinatorUrl};
use super::values;
use crate::coordinator::etcd::{EtcdSettings, EtcdTls, EtcdUser, Layout};
use crate::coordinator::{PostgresAccess, PostgresSettings};

/// Where leases are if nobody says so.
const PREFIX: &str = "/fencegate/leases";

/// Keys that are about etcd alone.
const OF_ETCD: [&str; 6] = ["prefix", "layout", "username", "ca_file", "cert_file", "key_file"];
/// Keys that are about PostgreSQL alone.
const OF_POSTGRES: [&str; 1] = ["listen_url"];
const PASSWORD: &str = "password_file";

/// `[coordinator]`
#[derive(Clone, Debug)]
pub enum Coordinator {
    /// `embedded`, the default: in the store's own file.
    Embedded,
    /// `etcd://…` or `etcds://…`.
    Etcd(EtcdSettings),
    /// `postgres://…`.
    Postgres(PostgresSettings),
}

pub(super) fn coordinator(mut from: Reader<'_>) -> Option<Coordinator> {
    let url = from.read("url", urls::coordinator);
    let prefix = from.read_if_set("prefix", values::prefix);
    let layouts = [("mutex", Layout::Mutex), ("key", Layout::Key)];
    let layout = from.read_if_set("layout", values::choice(&layouts));
    let username = from.read_if_set("username", values::text);
    let [password, ca, certificate, key] =
        [PASSWORD, "ca_file", "cert_file", "key_file"].map(|name| contents(&mut from, name));
    let listen = from.read_if_set("listen_url", urls::listen_url);
    // The URL of PostgreSQL names the user.
    let is_postgres = matches!(url, Some(CoordinatorUrl::Postgres(_)));
    let pairs_are_whole = (is_postgres || from.together("username", PASSWORD))
        & from.together("cert_file", "key_file");
    let (endpoints, with_tls) = match url? {
        CoordinatorUrl::Embedded => return Some(Coordinator::Embedded),
        CoordinatorUrl::Postgres(access) => return postgres(access, password, listen),
        CoordinatorUrl::Etcd { endpoints, with_tls } => (endpoints, with_tls),
    };
    if !pairs_are_whole | !tls_is_meant(&mut from, with_tls) {
        return None;
    }
    let user = pair(username, password)?;
    let identity = pair(certificate, key)?;
    let tls = ca.map(|ca| ca.map(|ca| EtcdTls { ca, identity }));
    Some(Coordinator::Etcd(EtcdSettings {
        endpoints,
        prefix: prefix.unwrap_or_else(|| Some(PREFIX.to_owned()))?,
        layout: layout.unwrap_or(Some(Layout::Mutex))?,
        user: user.map(|(name, password)| EtcdUser { name, password }),
        tls: readable(tls)?,
    }))
}

/// One password does for both addresses: they are of one database.
fn postgres(
    access: PostgresAccess,
    password: Option<Option<String>>,
    listen: Option<Option<Option<PostgresAccess>>>,
) -> Option<Coordinator> {
    let password = readable(password)?;
    let listen = readable(listen)?.unwrap_or_else(|| Some(access.clone()));
    let with_password = |access: PostgresAccess| match &password {
        Some(password) => access.with_password(password.clone()),
        None => access,
    };
    Some(Coordinator::Postgres(PostgresSettings {
        access: with_password(access),
        listen: listen.map(with_password),
    }))
}

/// Of "set, and could it be read?": what could not be read makes the whole `None`.
fn readable<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    value.map_or(Some(None), |value| value.map(Some))
}

fn pair<A, B>(a: Option<Option<A>>, b: Option<Option<B>>) -> Option<Option<(A, B)>> {
    readable(a.zip(b).map(|(a, b)| a.zip(b)))
}

/// What is in the file that a key names, without the end of its last line.
fn contents(from: &mut Reader<'_>, name: &str) -> Option<Option<String>> {
    from.read_if_set(name, |path| {
        let text = file::read_text(Path::new(path)).map_err(|why| format!("{} {why}", shown(path)));
        Ok(text?.trim_end_matches(['\n', '\r']).to_owned())
    })
}

/// Whether the URL's scheme and the files go together; else it is a mistake.
fn tls_is_meant(from: &mut Reader<'_>, with_tls: bool) -> bool {
    if with_tls {
        if !from.is_set("ca_file") {
            let place = from.place("url");
            let message = "coordinator.url: etcds:// needs coordinator.ca_file, a file of the \
                           certificates that etcd's own is signed by";
            from.mistakes.push(&place, message);
        }
        return from.is_set("ca_file");
    }
    let names = ["ca_file", "cert_file"];
    let Some(name) = names.into_iter().find(|name| from.is_set(name)) else { return true };
    let place = from.place(name);
    let message = format!("coordinator.{name}: TLS needs coordinator.url = \"etcds://…\"");
    from.mistakes.push(&place, message);
    false
}

impl Coordinator {
    /// What messages call it.
    pub(super) const fn called(&self) -> &'static str {
        match self {
            Coordinator::Embedded => "the embedded coordinator",
            Coordinator::Etcd(_) => "a coordinator on etcd",
            Coordinator::Postgres(_) => "a coordinator on PostgreSQL",
        }
    }

    /// What is set for others and means nothing to this one.
    pub(super) fn without_effect(&self, settings: &Settings) -> Vec<(&'static str, Origin)> {
        let keys: [&[&str]; 3] = match self {
            Coordinator::Embedded => [&OF_ETCD, &OF_POSTGRES, &[PASSWORD]],
            Coordinator::Etcd(_) => [&OF_POSTGRES, &[], &[]],
            Coordinator::Postgres(_) => [&OF_ETCD, &[], &[]],
        };
        let slot = |name| Slot { section: Section::Coordinator, index: 0, name };
        keys.into_iter()
            .flatten()
            .filter_map(|name| settings.get(slot(name)).map(|(_, place)| (*name, place.clone())))
            .collect()
    }
}
