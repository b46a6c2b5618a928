//! Makes the configuration out of the merged settings.
//!
//! All values of a table are read before any is asked for, since a mistake must not hide the next.

use std::collections::BTreeSet;
use std::thread::available_parallelism;

use super::keys::{Section, Slot};
use super::mistakes::{Mistakes, Origin, shown};
use super::reader::Reader;
use super::settings::{Settings, Value};
use super::urls::{self, StoreUrl};
use super::{
    Case, Config, Fenced, Forwarded, Listen, Metrics, Mode, Protocol, Route, Shutdown, Store,
    Telemetry, Tokens, Upstream,
};
use super::{access, check, coordinator, limits, pattern, tls, values};
use crate::store::{Migrate, PostgresSettings, PostgresUrl};

const KIB: u64 = 1024;
/// Each costs a look into the store at each scrape, and two series.
const MOST_RESOURCES: usize = 100;
const GIB: u64 = 1024 * 1024 * KIB;

/// What the only upstream and the only route are called if they have no name.
const SOLE: &str = "default";

/// `None` if anything could not be read; the mistakes say what.
pub(super) fn config(settings: &Settings, mistakes: &mut Mistakes) -> Option<Config> {
    let listen = listen(Reader::single(Section::Listen, settings, mistakes));
    let access = access::access(Reader::single(Section::Access, settings, mistakes));
    let store = store(Reader::single(Section::Store, settings, mistakes));
    let coordinator =
        coordinator::coordinator(Reader::single(Section::Coordinator, settings, mistakes));
    let upstreams = each(Section::Upstream, settings, mistakes, upstream);
    let names = names(settings, Section::Upstream);
    let routes = each(Section::Route, settings, mistakes, |reader| route(reader, &names));
    let limits = limits::limits(Reader::single(Section::Limits, settings, mistakes));
    let shutdown = shutdown(Reader::single(Section::Shutdown, settings, mistakes));
    let metrics = metrics(Reader::single(Section::Metrics, settings, mistakes));
    let telemetry = telemetry(Reader::single(Section::Telemetry, settings, mistakes));
    check::exposed_listeners(settings, mistakes);
    check::coordinator_fits(store.as_ref(), coordinator.as_ref(), settings, mistakes);
    Some(Config {
        listen: listen?,
        access: access?,
        store: store?,
        coordinator: coordinator?,
        upstreams: upstreams?,
        routes: routes?,
        limits: limits?,
        shutdown: shutdown?,
        metrics: metrics?,
        telemetry: telemetry?,
    })
}

/// The names of all upstreams or routes, with where each was given. An absent or invalid one is
/// in the list as it is: its own mistake is reported elsewhere.
pub(super) fn names(settings: &Settings, section: Section) -> Vec<(String, Origin)> {
    let tables: Vec<_> = settings.tables(section).collect();
    let name = |(index, table): &(usize, &Origin)| match settings.get(Slot {
        section,
        index: *index,
        name: "name",
    }) {
        Some((Value::Text(name), origin)) => (name.clone(), origin.clone()),
        None if tables.len() == 1 => (SOLE.to_owned(), (*table).clone()),
        _ => (String::new(), (*table).clone()),
    };
    tables.iter().map(name).collect()
}

fn each<T>(
    section: Section,
    settings: &Settings,
    mistakes: &mut Mistakes,
    read: impl Fn(Reader<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let all: Vec<_> = settings
        .tables(section)
        .map(|(index, _)| read(Reader { settings, mistakes, section, index }))
        .collect();
    all.into_iter().collect()
}

fn listen(mut from: Reader<'_>) -> Option<Listen> {
    let proxy = from.read("proxy", values::address);
    let leases = from.read("leases", values::address);
    let admin = from.read("admin", values::address);
    let workers = from
        .read_if_set("workers", values::number(1024))
        .unwrap_or_else(|| Some(available_parallelism().map_or(1, usize::from)));
    let [proxy_tls, leases_tls, admin_tls] =
        tls::LISTENERS.map(|listener| tls::listener(&mut from, listener));
    let [proxy_protocol_from, trusted_proxies] = ["proxy_protocol_from", "trusted_proxies"]
        .map(|name| from.read_list_if_set(name, tls::network).unwrap_or(Some(Vec::new())));
    let forwarded = from.read(
        "forwarded",
        values::choice(&[
            ("none", Forwarded::None),
            ("x-forwarded", Forwarded::XForwarded),
            ("forwarded", Forwarded::Forwarded),
        ]),
    );
    check::no_overlap([("proxy", proxy), ("leases", leases), ("admin", admin)], &mut from);
    Some(Listen {
        proxy: proxy?,
        leases: leases?,
        admin: admin?,
        workers: workers?,
        proxy_tls: proxy_tls?,
        leases_tls: leases_tls?,
        admin_tls: admin_tls?,
        proxy_protocol_from: proxy_protocol_from?,
        trusted_proxies: trusted_proxies?,
        forwarded: forwarded?,
    })
}

/// `store.url_file` was replaced by what is in it before.
fn store(mut from: Reader<'_>) -> Option<Store> {
    let store = from.read("url", urls::store);
    let direct = from.read_if_set("listen_url", urls::store_server);
    let password = from.read_if_set("password_file", values::secret);
    let connections = from.read("connections", values::number(1000));
    let instance_ttl = from.read("instance_ttl", values::instance_ttl);
    let migrate = from.read(
        "migrate",
        values::choice(&[("at_start", Migrate::AtStart), ("by_command", Migrate::ByCommand)]),
    );
    let pooled = match store? {
        StoreUrl::Sqlite(path) => return Some(Store::Sqlite(path)),
        StoreUrl::Postgres(url) => url,
    };
    let direct = direct.unwrap_or_else(|| Some(pooled.clone()))?;
    let with_password = |url: PostgresUrl| match &password {
        Some(Some(password)) => Some(url.with_password(password)),
        Some(None) => None,
        None => Some(url),
    };
    Some(Store::Postgres(PostgresSettings {
        pooled: with_password(pooled)?,
        direct: with_password(direct)?,
        connections: u32::try_from(connections?).ok()?,
        migrate: migrate?,
        instance_ttl: instance_ttl?,
    }))
}

fn upstream(mut from: Reader<'_>) -> Option<Upstream> {
    let name = name(&mut from, values::name);
    let url = from.read("url", urls::upstream_url);
    let timeout = from.read("timeout", values::positive_duration);
    let settle = from.read("settle", values::positive_duration);
    let connect_timeout = from.read("connect_timeout", values::positive_duration);
    let idle = from.read("idle", values::duration);
    let connections = from.read("connections", values::number(100_000));
    let waiting = from.read("waiting", values::number(100_000));
    let protocols = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    let protocol = from.read("protocol", values::choice(&protocols));
    let tls = tls::upstream(&mut from, url.as_ref(), protocol == Some(Protocol::Http2));
    let credential = access::upstream_credential(&mut from);
    Some(Upstream {
        name: name?,
        authority: url?.authority,
        tls: tls?,
        protocol: protocol?,
        timeout: timeout?,
        settle: settle?,
        connect_timeout: connect_timeout?,
        idle: idle?,
        connections: connections?,
        waiting: waiting?,
        credential: credential?,
    })
}

fn name(from: &mut Reader<'_>, parse: impl Fn(&str) -> Result<String, String>) -> Option<String> {
    let is_sole = from.settings.tables(from.section).count() == 1;
    match from.read_if_set("name", &parse) {
        None if is_sole => Some(SOLE.to_owned()),
        None => from.read("name", parse),
        Some(read) => read,
    }
}

fn route(mut from: Reader<'_>, upstreams: &[(String, Origin)]) -> Option<Route> {
    let name = name(&mut from, values::route_name);
    let path = from.read("path", pattern::path);
    let resource = resource(&mut from);
    let upstream = route_upstream(&mut from, upstreams);
    let fenced = from.read_list_if_set("fenced", values::method);
    let mode = from
        .read("mode", values::choice(&[("enforce", Mode::Enforce), ("observe", Mode::Observe)]));
    let tokens = from
        .read("tokens", values::choice(&[("held", Tokens::Held), ("ordered", Tokens::Ordered)]));
    let case =
        from.read("case", values::choice(&[("exact", Case::Exact), ("ignore", Case::Ignore)]));
    let drain = from.read("drain", values::duration);
    let wait = from.read("wait", values::duration);
    let buffer = from.read("buffer", values::size(0, GIB));
    let max_body = from.read("max_body", values::size(1, 1024 * GIB));
    let concurrency = from.read_optional("concurrency", values::number(1_000_000));
    let rate = from.read_optional("rate", values::rate);
    Some(Route {
        name: name?,
        path: path?,
        resource: resource?,
        upstream: upstream?,
        fenced: fenced.map_or(Some(Fenced::Writes), |read| read.map(Fenced::Only))?,
        mode: mode?,
        tokens: tokens?,
        case: case?,
        drain: drain?,
        wait: wait?,
        buffer_bytes: usize::try_from(buffer?).ok()?,
        body_bytes: max_body?,
        concurrency: concurrency?,
        rate: rate?,
    })
}

fn resource(from: &mut Reader<'_>) -> Option<String> {
    let path = Slot { section: Section::Route, index: from.index, name: "path" };
    let parameters = match from.settings.get(path) {
        Some((Value::Text(path), _)) => pattern::parameters(path),
        _ => Vec::new(),
    };
    from.read("resource", pattern::template(&parameters))
}

/// The position of the route's upstream; by its name, or the only one there is.
fn route_upstream(from: &mut Reader<'_>, upstreams: &[(String, Origin)]) -> Option<usize> {
    // A set, as two may have one name, which is a mistake of its own.
    let known = || -> Vec<_> {
        let names: BTreeSet<_> = upstreams.iter().map(|(name, _)| format!("{name:?}")).collect();
        names.into_iter().collect()
    };
    let by_name = |text: &str| {
        let found = upstreams.iter().position(|(name, _)| name == text);
        found.ok_or_else(|| {
            format!("there is no upstream {}, only {}", shown(text), known().join(", "))
        })
    };
    match upstreams {
        // Said once, about the missing upstream.
        [] => None,
        [_] => from.read_if_set("upstream", by_name).unwrap_or(Some(0)),
        _ => from.read("upstream", by_name),
    }
}

fn shutdown(mut from: Reader<'_>) -> Option<Shutdown> {
    let unready = from.read("unready", values::duration);
    let grace = from.read("grace", values::duration);
    Some(Shutdown { unready: unready?, grace: grace? })
}

fn telemetry(mut from: Reader<'_>) -> Option<Telemetry> {
    let otlp = from.read_optional("otlp", urls::collector);
    let service = from.read("service", values::service);
    Some(Telemetry { otlp: otlp?, service: service? })
}

fn metrics(mut from: Reader<'_>) -> Option<Metrics> {
    let resources =
        from.read_list_if_set("resources", values::resource).unwrap_or_else(|| Some(Vec::new()));
    let count = resources.as_ref().map_or(0, Vec::len);
    if count > MOST_RESOURCES {
        let place = from.place("resources");
        let message =
            format!("metrics.resources: {count} are named, at most {MOST_RESOURCES} may be");
        from.mistakes.push(&place, message);
    }
    Some(Metrics { resources: resources? })
}
