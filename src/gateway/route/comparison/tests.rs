use std::fmt::Write as _;

use prometheus::Registry;

use super::*;
use crate::clock::Clock;
use crate::config::{self, Sources};
use crate::gateway::route::RouteLoads;
use crate::metrics::{Exemplars, FenceMetrics, GatewayMetrics};

/// A table of routes that are written `path resource` and what else there is to say of them.
fn table(routes: &[&str]) -> RouteTable {
    let mut text = "[[upstream]]\nurl = \"http://127.0.0.1:9\"\n".to_owned();
    for (number, route) in routes.iter().enumerate() {
        let mut words = route.splitn(3, ' ');
        let (path, resource) = (words.next().unwrap(), words.next().unwrap());
        let rest = words.next().unwrap_or_default();
        write!(text, "[[route]]\nname = \"r{number}\"\npath = \"{path}\"\nresource = \"{resource}\"\n{rest}\n")
            .unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("f.toml");
    std::fs::write(&file, text).unwrap();
    let loaded = config::load(&Sources { file: Some(file), ..Sources::default() });
    let config = loaded.unwrap_or_else(|mistakes| panic!("{mistakes}")).config;
    let (registry, exemplars) = (Registry::new(), Exemplars::new(Clock::new()));
    let fences = FenceMetrics::register(&registry, &exemplars).unwrap();
    let metrics = GatewayMetrics::register(&registry, &exemplars, &fences).unwrap();
    RouteTable::new(&config, &metrics, &RouteLoads::new()).unwrap()
}

fn renamed(old: &[&str], new: &[&str]) -> Vec<String> {
    compare(&table(old), &table(new)).renamed
}

#[track_caller]
fn keeps(old: &[&str], new: &[&str]) {
    assert_eq!(renamed(old, new), Vec::<String>::new());
    assert_eq!(renamed(new, old), Vec::<String>::new());
}

#[track_caller]
fn renames(old: &[&str], new: &[&str]) {
    assert_ne!(renamed(old, new), Vec::<String>::new());
    assert_ne!(renamed(new, old), Vec::<String>::new());
}

#[test]
fn another_template_is_another_resource() {
    renames(&["/a/{x}/{*r} a:{x}"], &["/a/{x}/{*r} b:{x}"]);
    renames(&["/a/{x}/{*r} a:{x}"], &["/a/{x}/{*r} a:{r}"]);
    keeps(&["/a/{x}/{*r} a:{x}"], &["/a/{y}/{*s} a:{y}"]);
}

#[test]
fn a_more_specific_route_takes_paths_away() {
    let all = "/{*rest} {path}";
    renames(&[all], &[all, "/a/{x}/{*r} a:{x}"]);
    renames(&[all], &[all, "/a/special s"]);
    keeps(&[all], &[all, "/a/{x} {path}"]);
    // Where no route was, nothing was fenced under another name.
    keeps(&["/a/{x} a:{x}"], &["/a/{x} a:{x}", "/b/{x} b:{x}"]);
    // What is wider takes nothing away.
    keeps(&["/a/{x} a:{x}"], &["/a/{x} a:{x}", "/{*rest} {path}"]);
    // It does, deeper down.
    renames(&["/a/{*r} a"], &["/a/{*r} a", "/a/b/{y}/{z} {path}"]);
    renames(&["/{*rest} all"], &["/{*rest} all", "/ {path}"]);
    renames(&["/a/{x} a:{x}"], &["/a/{x} a:{x}", "/a/b-{x} b:{x}"]);
}

#[test]
fn unfenced_routes_have_no_resources() {
    keeps(&["/a/{x} a:{x} fenced = []", "/b {path}"], &["/a/{x} b:{x}", "/b {path}"]);
}

#[test]
fn what_protects_less_is_named() {
    let old = ["/a/{x} a:{x}", "/b {path}", "/c {path}", "/d {path}"];
    let new = [
        "/a/{x} a:{x} fenced = [\"PUT\"]",
        "/b {path} mode = \"observe\"",
        "/c {path} tokens = \"ordered\"",
        "/d {path} drain = \"1s\"",
    ];
    let Comparison { renamed, opened, trusting } = compare(&table(&old), &table(&new));
    assert!(renamed.is_empty());
    let of = |name: &str| {
        let methods = opened.get(&(name.to_owned(), name.to_owned()));
        methods.map(|methods| methods.iter().cloned().collect::<Vec<_>>().join(" "))
    };
    assert_eq!(of("r0").as_deref(), Some("DELETE PATCH POST any other"));
    assert_eq!(of("r1").as_deref(), Some("DELETE PATCH POST PUT any other"));
    assert_eq!(of("r2").or(of("r3")), None);
    assert_eq!(trusting.into_iter().collect::<Vec<_>>(), ["r2"]);
    let back = compare(&table(&new), &table(&old));
    assert!(back.opened.is_empty() && back.trusting.is_empty());
}

/// Whatever path gets another name, a witness tells.
#[test]
fn no_path_of_random_tables_is_renamed_unseen() {
    let mut random = fastrand::Rng::with_seed(7);
    let patterns = [
        "/{*rest}",
        "/a/{x}",
        "/a/{*r}",
        "/a/b",
        "/a/{x}/c",
        "/{x}/b",
        "/a/b/{*r}",
        "/{x}/{y}/c",
        "/a/b-{x}",
        "/",
        "/a/{x}-z",
        "/b/{x}/{*r}",
    ];
    let resources = ["{path}", "same", "own"];
    let draw = |random: &mut fastrand::Rng| {
        let mut routes = Vec::new();
        for _ in 0..random.usize(1..5) {
            let pattern = patterns[random.usize(..patterns.len())];
            let resource = resources[random.usize(..resources.len())];
            // Those that conflict are refused by the loader, as is a path that is there twice.
            let mut router = matchit::Router::new();
            let others =
                routes.iter().map(|route: &String| route.split(' ').next().unwrap().to_owned());
            let fits =
                others.chain([pattern.to_owned()]).all(|path| router.insert(path, ()).is_ok());
            if fits {
                routes.push(format!("{pattern} {resource}"));
            }
        }
        table(&routes.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let segments = ["a", "b", "c", "b-", "b-q", "q-z", "b-z", "zz"];
    let (mut same, mut differ) = (0, 0);
    for _ in 0..300 {
        let (old, new) = (draw(&mut random), draw(&mut random));
        let is_seen = !compare(&old, &new).renamed.is_empty();
        let mut is_renamed = false;
        for _ in 0..400 {
            let length = random.usize(0..5);
            let path: String = (0..length)
                .map(|_| format!("/{}", segments[random.usize(..segments.len())]))
                .collect();
            let path = if path.is_empty() { "/" } else { &path };
            if let (Some((_, was)), Some((_, is))) = (old.find(path), new.find(path)) {
                is_renamed |= was != is;
                assert!(is_seen || was == is, "{path}: {was} and {is}");
            }
        }
        (same, differ) = (same + usize::from(!is_renamed), differ + usize::from(is_renamed));
    }
    assert!(same > 20 && differ > 20, "{same} {differ}");
}
