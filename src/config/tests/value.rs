//! One wrong value at a time, and what is said about it.

use super::{Given, SMALL, assert_lines};

/// The mistakes of a small file with one more line in `table`.
#[track_caller]
fn refused(table: &str, line: &str, words: &str) {
    let (text, number) = match table {
        "upstream" => (SMALL.replace("\n\n", &format!("\n{line}\n\n")), 3),
        "route" => (format!("{SMALL}{line}\n"), 6),
        table => (format!("{SMALL}[{table}]\n{line}\n"), 7),
    };
    let place = format!("fencegate.toml:{number}");
    let lines = Given::file(&text).mistakes();
    assert_lines(&lines, &[(&place, words)]);
}

/// The mistakes of a file with this URL or this path.
#[track_caller]
fn refused_url(url: &str, words: &str) {
    let text = SMALL.replace("http://127.0.0.1:9000", url);
    assert_lines(&Given::file(&text).mistakes(), &[("fencegate.toml:2", words)]);
}

#[track_caller]
fn refused_path(path: &str, words: &str) {
    let text = SMALL.replace("\"/{*rest}\"", &format!("'{path}'"));
    assert_lines(&Given::file(&text).mistakes(), &[("fencegate.toml:5", words)]);
}

#[test]
fn durations_need_a_unit_and_a_sensible_length() {
    refused("upstream", "timeout = 30", "30 has no unit; add ms, s, m or h; for example \"30s\"");
    refused("upstream", "timeout = \"30\"", "30 has no unit");
    refused("upstream", "timeout = \"1.5s\"", "\"1.5s\" is no duration");
    refused("upstream", "timeout = \"-1s\"", "\"-1s\" is no duration");
    refused("upstream", "timeout = \"s\"", "has a unit, but no number");
    refused("upstream", "timeout = \"721h\"", "too long");
    refused("upstream", "timeout = \"99999999999999999999h\"", "too long");
    refused("upstream", "settle = \"0s\"", "must be longer than zero");
    refused("limits", "body_timeout = \"0ms\"", "must be longer than zero");
    refused("route", "drain = true", "expected a duration, found boolean");
}

#[test]
fn sizes_and_numbers_have_bounds() {
    refused("route", "buffer = \"64KB\"", "\"64KB\" is no size");
    refused("route", "buffer = -1", "\"-1\" is no size");
    refused("route", "max_body = 0", "\"0\" is not from 1 to");
    refused("route", "max_body = \"99999999999GiB\"", "is not from 1 to");
    refused("limits", "head_size = \"4KiB\"", "is not from 8192 to");
    refused("limits", "waiters = 0", "\"0\" is no whole number from 1 to 1000000");
    refused("limits", "cells = 1.5", "expected a number, found float");
    refused("listen", "workers = \"+4\"", "\"+4\" is no whole number");
}

#[test]
fn resources_with_metrics_are_valid_and_few() {
    refused("metrics", "resources = \"a\"", "expected a list of resources, found string");
    refused("metrics", "resources = [\"\"]", "is no resource");
    let many = vec!["\"r\""; 101].join(",");
    refused("metrics", &format!("resources = [{many}]"), "101 are named, at most 100 may be");
}

#[test]
fn listeners_take_an_ip_address_and_a_port() {
    refused("listen", "proxy = \"localhost:8080\"", "\"localhost:8080\" is no IP address and port");
    refused("listen", "leases = \":8081\"", "every interface is \"0.0.0.0:8081\"");
    refused("listen", "admin = true", "expected an address, found boolean");
    refused("listen", "admin = 9090", "expected a text in quotes, found an integer");
}

#[test]
fn upstream_urls_end_after_the_port() {
    refused_url("127.0.0.1:9000", "is no URL: http:// or https:// and a host");
    refused_url("ftp://127.0.0.1", "does not start with http:// or https://");
    refused_url("http://127.0.0.1/api", "must end after the port");
    refused_url("http://127.0.0.1?a=secret", "\"http://127.0.0.1?***\" must end after the port");
    for bad in ["http://", "http://:80", "http://a:", "http://a:0", "http://a:65536", "http://a b"]
    {
        refused_url(bad, "has no valid host and port");
    }
    for bad in ["http://[::1", "http://[::1]x:1", "http://[127.0.0.1]:1", "http://::1", "http://é"]
    {
        refused_url(bad, "has no valid host and port");
    }
}

#[test]
fn upstream_urls_become_host_and_port() {
    let authority = |url: &str| {
        let text = SMALL.replace("http://127.0.0.1:9000", url);
        Given::file(&text).loaded().config.upstreams[0].authority.clone()
    };
    assert_eq!(authority("http://127.0.0.1:9000/"), "127.0.0.1:9000");
    assert_eq!(authority("HTTP://ledger.internal"), "ledger.internal:80");
    assert_eq!(authority("http://[::1]"), "[::1]:80");
    assert_eq!(authority("http://[::1]:9000"), "[::1]:9000");
}

#[test]
fn networks_are_addresses_with_a_prefix_that_ends_where_it_says() {
    refused("listen", "trusted_proxies = [\"10.0.0.0/33\"]", "is no network");
    refused("listen", "proxy_protocol_from = [\"lb.internal\"]", "is no network");
    refused("listen", "trusted_proxies = [\"10.0.0.1/8\"]", "beyond its prefix; write 10.0.0.0/8");
    refused("listen", "trusted_proxies = \"10.0.0.0/8\"", "expected a list of networks");
}

#[test]
fn no_message_shows_a_password() {
    let secret = "hunter/2@?x";
    let urls = [
        (format!("http://user:{secret}@127.0.0.1"), "upstream"),
        (format!("gopher://user:{secret}@127.0.0.1"), "upstream"),
        (format!("user:{secret}@127.0.0.1"), "upstream"),
        (format!("postgres://user:{secret}@127.0.0.1/db"), "store"),
        (format!("mysql://user:{secret}@127.0.0.1/db"), "store"),
        (format!("etcd://user:{secret}@127.0.0.1"), "coordinator"),
    ];
    for (url, table) in urls {
        let text = match table {
            "upstream" => SMALL.replace("http://127.0.0.1:9000", &url),
            table => format!("{SMALL}[{table}]\nurl = \"{url}\"\n"),
        };
        let lines = Given::file(&text).mistakes();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(!lines[0].contains("hunter"), "{lines:?}");
    }
    let lines = Given::file("[store]\nurl = \"hunter2").mistakes();
    assert_lines(&lines, &[("fencegate.toml:2", "this is not TOML")]);
    assert!(!lines[0].contains("hunter"), "{lines:?}");
}

#[test]
fn names_words_and_methods_are_plain() {
    refused("upstream", "name = \"Ledger\"", "\"Ledger\" is no name");
    refused("upstream", "name = \"\"", "\"\" is no name");
    refused("route", &format!("name = \"{}\"", "x".repeat(65)), "is no name");
    refused("route", "mode = \"obsevre\"", "did you mean \"observe\"?");
    refused("route", "tokens = \"any\"", "\"any\" is not \"held\" or \"ordered\"");
    refused("route", "fenced = \"POST\"", "expected a list of methods, found string");
    refused("route", "fenced = [\"post\"]", "write \"POST\" for \"post\"");
    refused("route", "fenced = [\"PO ST\"]", "\"PO ST\" is no HTTP method");
    refused("route", "fenced = [\"CONNECT\"]", "CONNECT is never forwarded");
    refused("route", "fenced = [1]", "found array with something else than strings");
    refused("route", "upstream = \"ledger\"", "there is no upstream \"ledger\", only \"default\"");
}

#[test]
fn paths_are_in_normal_form() {
    refused_path("accounts", "does not start with /");
    refused_path("", "does not start with /");
    refused_path("/a//b", "has //");
    refused_path("/a/./b", "has a dot segment");
    refused_path("/a/..", "has a dot segment");
    refused_path("/a/", "ends with /, which no normalised path does: \"/a\"");
    for bad in ["/a;b", "/a%20b", "/a\\b", "/a b", "/a?b", "/a#b", "/é"] {
        refused_path(bad, "which no normalised path has");
    }
    refused_path("/{{a}}", "{{ and }} are not supported");
    refused_path("/{a", "parameters must be registered with a valid name");
    refused_path("/{}", "the parameter \"\" is not a name");
    refused_path("/{*rest}/a", "catch-all parameters are only allowed at the end");
    refused_path("/{a}-{b}", "only one parameter is allowed per path segment");
    refused_path("/{a}/{a}", "the parameter {a} is there twice");
    refused_path("/{path}", "{path} is the whole path");
}

#[test]
fn templates_use_what_the_path_gives() {
    refused("route", "resource = \"\"", "is empty");
    refused("route", "resource = \"a:{{rest}}\"", "{{ and }} are not supported");
    refused("route", "resource = \"a\\u0007\"", "has a control character");
    refused("route", "resource = \"a:{rest\"", "has a brace without its partner");
    refused("route", "resource = \"a:rest}\"", "has a brace without its partner");
    refused("route", "resource = \"{*rest}\"", "did you mean {rest}?");
    refused("route", "resource = \"{account}\"", "the path gives {rest}, {path}");
    refused("route", &format!("resource = \"{}\"", "x".repeat(1025)), "is longer than a resource");
    let loaded = Given::file(&format!("{SMALL}resource = \"a:{{rest}}\"\n")).loaded();
    assert_eq!(loaded.config.routes[0].resource, "a:{rest}");
}

#[test]
fn store_and_coordinator_are_what_this_version_has() {
    refused("store", "url = \"postgres://127.0.0.1:x/db\"", "is no URL of the form postgres://");
    refused("store", "listen_url = \"sqlite:a.db\"", "expected postgres://");
    refused("store", "instance_ttl = \"900ms\"", "is not from 1s to 10m");
    refused("store", "url = \"fencegate.db\"", "expected sqlite:PATH");
    refused("store", "url = \"sqlite:\"", "names no file");
    refused("store", "url = \"sqlite:///var/a.db\"", "takes a path and no //");
    refused("store", "url = \"sqlite::memory:\"", "a store in memory forgets");
    refused("store", "url = \"sqlite:a.db?mode=ro\"", "takes no parameters");
    refused("coordinator", "url = \"postgres\"", "is no URL");
    refused("coordinator", "url = \"postgres://a:b@db/x\"", "must hold no password");
    refused("coordinator", "url = \"consul\"", "expected embedded");
    refused("coordinator", "url = \"etcd://\"", "a host and a port");
    refused("coordinator", "url = \"etcd:a:2379\"", "is followed by //");
    refused("coordinator", "url = \"etcd://a,b:x\"", "a host and a port");
    refused("coordinator", "prefix = \"//\"", "is no prefix");
}

#[test]
fn no_route_has_the_name_of_no_route() {
    refused("route", "name = \"none\"", "is what metrics call requests that no route takes");
}

#[test]
fn unknown_keys_come_with_what_was_meant() {
    refused(
        "route",
        "drian = \"1s\"",
        "unknown key \"drian\" in [[route]]; did you mean \"drain\"?",
    );
    refused("listen", "settle = \"1s\"", "it belongs into [[upstream]]");
    refused("store", "password = 1", "unknown key \"password\" in [store]; it has url, url_file");
}
