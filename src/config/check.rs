//! What only shows when values are seen together.
//!
//! Works on single values, not on the finished configuration, so that one value that cannot be
//! read does not hide that two routes conflict.

use std::net::{IpAddr, SocketAddr};

use super::build::names;
use super::keys::{Section, Slot};
use super::mistakes::{Mistakes, Origin, shown};
use super::reader::Reader;
use super::settings::{Settings, Value};
use super::{Coordinator, Store, Upstream};
use super::{pattern, values};

/// Checks what the whole configuration has to fulfil; `whole` is its place.
pub(super) fn all(settings: &Settings, whole: &Origin, mistakes: &mut Mistakes) {
    settings.check_numbering(mistakes);
    unique_names(settings, Section::Upstream, mistakes);
    unique_names(settings, Section::Route, mistakes);
    if settings.tables(Section::Upstream).next().is_none() {
        let message = "there is no upstream; add [[upstream]] with url = \"http://127.0.0.1:9000\" \
                       to the file, or give --upstream http://127.0.0.1:9000";
        mistakes.push(whole, message);
    } else {
        something_is_fenced(settings, whole, mistakes);
    }
    no_conflicts(settings, mistakes);
}

fn unique_names(settings: &Settings, section: Section, mistakes: &mut Mistakes) {
    let names = names(settings, section);
    for (nth, (name, place)) in names.iter().enumerate() {
        let earlier = names[..nth].iter().find(|(other, _)| other == name && !name.is_empty());
        if let Some((_, first)) = earlier {
            let section = section.name();
            let message = format!(
                "{section}.name: {} is the name of another {section} already ({first})",
                shown(name)
            );
            mistakes.push(place, message);
        }
    }
}

/// A gateway that fences nothing looks like protection and is none.
fn something_is_fenced(settings: &Settings, whole: &Origin, mistakes: &mut Mistakes) {
    let unfenced: Vec<_> = settings
        .tables(Section::Route)
        .map(|(index, _)| {
            match settings.get(Slot { section: Section::Route, index, name: "fenced" }) {
                Some((Value::List(methods), place)) if methods.is_empty() => Some(place),
                _ => None,
            }
        })
        .collect();
    match unfenced.first() {
        None => mistakes.push(
            whole,
            "nothing is fenced: there is no route; add [[route]] with path = \"/{*rest}\" for \
             all paths",
        ),
        Some(Some(place)) if unfenced.iter().all(Option::is_some) => mistakes.push(
            place,
            "nothing is fenced: `fenced` is empty in every route; name methods in one of them, or \
             leave it out for every method but GET, HEAD and OPTIONS",
        ),
        Some(_) => {}
    }
}

/// No path may have two routes.
fn no_conflicts(settings: &Settings, mistakes: &mut Mistakes) {
    let get = |index, name| settings.get(Slot { section: Section::Route, index, name });
    let ignores_case = settings.tables(Section::Route).any(
        |(index, _)| matches!(get(index, "case"), Some((Value::Text(case), _)) if case == "ignore"),
    );
    // Where a route ignores case, it has to be plain for a path in any case which route is meant.
    let spelled = |path: String| if ignores_case { pattern::caseless(&path) } else { path };
    let paths = settings.tables(Section::Route).filter_map(|(index, _)| match get(index, "path") {
        Some((Value::Text(path), place)) => Some((spelled(pattern::path(path).ok()?), place)),
        _ => None,
    });
    let mut router = matchit::Router::new();
    let mut earlier: Vec<(String, &Origin)> = Vec::new();
    for (path, place) in paths {
        if let Err(error) = router.insert(path.as_str(), ()) {
            // The error's own text gives a path without the place.
            let with = earlier.iter().find(|(other, _)| conflict(other, &path));
            let with = with.map_or_else(
                || error.to_string(),
                |(other, place)| format!("conflicts with {other:?} ({place})"),
            );
            let advice = "some path would have two routes, so make one of them more specific";
            mistakes.push(place, format!("route.path: {path:?} {with}: {advice}"));
        }
        earlier.push((path, place));
    }
}

fn conflict(one: &str, other: &str) -> bool {
    let mut router = matchit::Router::new();
    router.insert(one, ()).and_then(|()| router.insert(other, ())).is_err()
}

/// The embedded coordinator keeps its leases in the file of an SQLite store.
pub(super) fn coordinator_fits(
    store: Option<&Store>,
    coordinator: Option<&Coordinator>,
    settings: &Settings,
    mistakes: &mut Mistakes,
) {
    if let (Some(Store::Postgres(_)), Some(Coordinator::Embedded)) = (store, coordinator) {
        let place = settings.origin(Slot { section: Section::Store, index: 0, name: "url" });
        let message = "coordinator.url: the embedded coordinator needs store.url = \
                       \"sqlite:PATH\"; with a PostgreSQL store name etcd://… or postgres://…";
        mistakes.push(&place, message);
    }
}

/// Without credentials everybody who reaches these listeners may everything.
pub(super) fn exposed_listeners(settings: &Settings, mistakes: &mut Mistakes) {
    let credentials = Slot { section: Section::Access, index: 0, name: "credentials" };
    if settings.get(credentials).is_some() {
        return;
    }
    for name in ["leases", "admin"] {
        let set = settings.get(Slot { section: Section::Listen, index: 0, name });
        let Some((Value::Text(text), place)) = set else { continue };
        let address = values::address(text).ok();
        if let Some(address) = address.filter(|at| !at.ip().to_canonical().is_loopback()) {
            let message = format!(
                "listen.{name}: {address} is not loopback, and without access.credentials \
                 everybody who reaches it may everything; name a credentials file (fencegate \
                 credential new makes what is in it), or listen on 127.0.0.1"
            );
            mistakes.push(place, message);
        }
    }
}

/// No two listeners may want one port of one address. Port 0 is a new one each time.
pub(super) fn no_overlap(listeners: [(&str, Option<SocketAddr>); 3], from: &mut Reader<'_>) {
    for (nth, (name, address)) in listeners.iter().enumerate() {
        let Some(address) = address else { continue };
        for (other_name, other) in &listeners[..nth] {
            let Some(other) = other.filter(|other| overlap(*address, *other)) else { continue };
            let (place, other_place) = (from.place(name), from.place(other_name));
            // Where somebody wrote something, if the other one is a default.
            let place = if place == Origin::Default { other_place } else { place };
            let message = format!(
                "listen.{name} = \"{address}\" and listen.{other_name} = \"{other}\" overlap; \
                 give each its own port"
            );
            from.mistakes.push(&place, message);
        }
    }
}

fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    // An unspecified IPv6 address takes IPv4 as well, unless the system was told otherwise.
    let takes = |one: IpAddr, other: IpAddr| {
        one == other || (one.is_unspecified() && (one.is_ipv6() || other.is_ipv4()))
    };
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() != 0 && one.port() == other.port() && (takes(a, b) || takes(b, a))
}

/// What is allowed, but worth a second look.
pub(super) fn warnings(config: &super::Config, settings: &Settings) -> Vec<String> {
    let coordinator = &config.coordinator;
    let without_effect = coordinator.without_effect(settings);
    let without_effect = without_effect.into_iter().map(|(name, place)| {
        format!("{place}: coordinator.{name}: has no effect on {}", coordinator.called())
    });
    let of_postgres = ["password_file", "listen_url", "connections", "instance_ttl", "migrate"];
    let of_postgres = of_postgres.into_iter().filter_map(|name| {
        let (_, place) = settings.get(Slot { section: Section::Store, index: 0, name })?;
        matches!(config.store, Store::Sqlite(_))
            .then(|| format!("{place}: store.{name}: has no effect on an SQLite store"))
    });
    let too_short = settle_shorter_than_timeout(config, settings);
    without_effect.chain(of_postgres).chain(too_short).collect()
}

/// Other instances take one that stands still for dead, and nobody cuts the writes of that one: what the
/// upstream does with them for longer than the settle time comes too late.
fn settle_shorter_than_timeout(config: &super::Config, settings: &Settings) -> Vec<String> {
    if matches!(config.store, Store::Sqlite(_)) {
        return Vec::new();
    }
    let upstreams = config.upstreams.iter().enumerate();
    let short = upstreams.filter(|(_, upstream)| upstream.settle < upstream.timeout);
    let warning = |(index, upstream): (usize, &Upstream)| {
        let place = settings.origin(Slot { section: Section::Upstream, index, name: "settle" });
        format!(
            "{place}: upstream.settle: is shorter than the timeout of {:?}; where several instances share a \
             store, no request may take effect later than that after its last byte, also one that \
             nobody cuts off",
            upstream.name
        )
    };
    short.map(warning).collect()
}
