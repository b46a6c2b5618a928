//! What becomes of requests when one route table takes the place of another while writes are under way.
//!
//! Two things matter. *Identity*: a path whose writes were fenced under one name must not get another one, since
//! writes under way, grants and marks of the old name would be nothing to those of the new one. *Protection*: a
//! write that a fence stood before must not lose it unnoticed.
//! Both are decided by the matchers themselves, on witnesses: for each pair of an old and a new route, the most
//! general paths that both patterns take, with segments that stand in no pattern where either lets anything pass.
//! If any path got another name, then one of the witnesses does: which route wins depends on the patterns alone,
//! and templates only copy what the path has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Method;

use super::{EVERY_PATH, Route, RouteTable};

/// See the module.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Comparison {
    /// Paths whose writes would get another resource, one line for each pair of routes.
    pub(in crate::gateway) renamed: Vec<String>,
    /// Methods, by the names of the old and the new route, that a fence stands before no more.
    pub(in crate::gateway) opened: BTreeMap<(String, String), BTreeSet<String>>,
    /// New routes that take any higher token where the coordinator was asked before.
    pub(in crate::gateway) trusting: BTreeSet<String>,
}

/// A method that is in no list, for those that are fenced because nobody knows them.
const UNKNOWN: &str = "UNKNOWN-METHOD";

/// Compares what both tables do.
pub(in crate::gateway) fn compare(old: &RouteTable, new: &RouteTable) -> Comparison {
    let mut comparison = Comparison::default();
    let depth = deepest(old).max(deepest(new)) + 2;
    let methods = methods(old, new);
    if is_caseless(old, new) && !has_same_names(old, new) {
        let why =
            "a route ignores case, and paths or resources of routes are not the same any more";
        comparison.renamed.push(why.to_owned());
    }
    let mut seen = BTreeSet::new();
    for one in &old.routes {
        for other in &new.routes {
            for witness in witnesses(&one.path, &other.path, depth) {
                if seen.insert(witness.clone()) {
                    comparison.at(&witness, old, new, &methods);
                }
            }
        }
    }
    comparison
}

impl Comparison {
    fn at(&mut self, path: &str, old: &RouteTable, new: &RouteTable, methods: &[Method]) {
        let (Some((was, name)), Some((is, new_name))) = (old.find(path), new.find(path)) else {
            // What no route takes is refused.
            return;
        };
        let fences = |route: &Route| methods.iter().any(|method| route.fences(method, false));
        if fences(was) && fences(is) && name != new_name {
            let (was, is) = (&was.name, &is.name);
            let line =
                format!("{path} is {name:?} by route {was:?} and would be {new_name:?} by {is:?}");
            self.renamed.push(line);
        }
        let protects = |route: &Route, method| route.fences(method, false) && !route.observe;
        let opened = methods.iter().filter(|method| protects(was, method) && !protects(is, method));
        let opened: BTreeSet<_> = opened.map(shown).collect();
        if !opened.is_empty() {
            let routes = (was.name.to_string(), is.name.to_string());
            self.opened.entry(routes).or_default().extend(opened);
        }
        if fences(was) && fences(is) && was.demand.terms.held && !is.demand.terms.held {
            self.trusting.insert(is.name.to_string());
        }
    }
}

/// Witnesses tell nothing of case.
fn is_caseless(old: &RouteTable, new: &RouteTable) -> bool {
    old.caseless.is_some() || new.caseless.is_some()
}

fn has_same_names(old: &RouteTable, new: &RouteTable) -> bool {
    let named = |route: &Arc<Route>, other: &Arc<Route>| {
        (&route.path, &route.template, route.ignores_case)
            == (&other.path, &other.template, other.ignores_case)
    };
    let mut pairs = old.routes.iter().zip(&new.routes);
    old.routes.len() == new.routes.len() && pairs.all(|(route, other)| named(route, other))
}

fn shown(method: &Method) -> String {
    if method.as_str() == UNKNOWN { "any other".to_owned() } else { method.to_string() }
}

fn methods(old: &RouteTable, new: &RouteTable) -> Vec<Method> {
    let listed = old.routes.iter().chain(&new.routes).flat_map(|route| route.listed_methods());
    let usual = ["GET", "POST", "PUT", "PATCH", "DELETE", UNKNOWN];
    let all: BTreeSet<&str> = listed.map(String::as_str).chain(usual).collect();
    all.into_iter().filter_map(|method| Method::from_bytes(method.as_bytes()).ok()).collect()
}

fn deepest(table: &RouteTable) -> usize {
    table.routes.iter().map(|route| route.path.matches('/').count()).max().unwrap_or_default()
}

/// The most general paths of up to `depth` segments that both patterns take.
fn witnesses(one: &str, other: &str, depth: usize) -> Vec<String> {
    let (one, other) = (segments(one), segments(other));
    let mut paths: Vec<String> =
        (1..=depth).filter_map(|length| meet(&one, &other, length)).collect();
    if [&one, &other].iter().all(|pattern| takes_the_root(pattern)) {
        paths.push("/".to_owned());
    }
    paths
}

fn segments(pattern: &str) -> Vec<&str> {
    pattern.strip_prefix('/').unwrap_or(pattern).split('/').collect()
}

fn takes_the_root(pattern: &[&str]) -> bool {
    pattern.is_empty() || pattern == [""] || pattern == segments(EVERY_PATH)
}

/// The path of `length` segments that both take; `None`: there is none.
fn meet(one: &[&str], other: &[&str], length: usize) -> Option<String> {
    let (one, other) = (stretched(one, length)?, stretched(other, length)?);
    let mut path = String::new();
    for (at, (one, other)) in one.iter().zip(&other).enumerate() {
        path.push('/');
        path.push_str(&meet_segments(one, other, at)?);
    }
    Some(path)
}

/// The pattern with its catch-all, if it has one, as parameters up to `length`.
fn stretched<'p>(pattern: &[&'p str], length: usize) -> Option<Vec<&'p str>> {
    let Some((last, before)) = pattern.split_last().filter(|(last, _)| last.starts_with("{*"))
    else {
        return (pattern.len() == length).then(|| pattern.to_vec());
    };
    let rest = length.checked_sub(before.len()).filter(|rest| *rest > 0)?;
    Some(before.iter().chain(std::iter::repeat_n(last, rest)).copied().collect())
}

/// `before` and `after` of `before{name}after`.
fn around(segment: &str) -> Option<(&str, &str)> {
    let (before, rest) = segment.split_once('{')?;
    Some((before, rest.split_once('}')?.1))
}

fn meet_segments(one: &str, other: &str, at: usize) -> Option<String> {
    let fits = |text: &str, (before, after): (&str, &str)| {
        text.len() > before.len() + after.len() && text.starts_with(before) && text.ends_with(after)
    };
    match (around(one), around(other)) {
        (None, None) => (one == other).then(|| one.to_owned()),
        (None, Some(parameter)) => fits(one, parameter).then(|| one.to_owned()),
        (Some(parameter), None) => fits(other, parameter).then(|| other.to_owned()),
        (Some((before, after)), Some((other_before, other_after))) => {
            let before = longer(before, other_before, str::starts_with)?;
            let after = longer(after, other_after, str::ends_with)?;
            Some(format!("{before}~{at}~{after}"))
        }
    }
}

/// The longer of two texts, if it begins (or ends) with the other.
fn longer<'t>(
    one: &'t str,
    other: &'t str,
    covers: impl Fn(&'t str, &'t str) -> bool,
) -> Option<&'t str> {
    let (long, short) = if one.len() >= other.len() { (one, other) } else { (other, one) };
    covers(long, short).then_some(long)
}

#[cfg(test)]
mod tests;
