//! A new configuration while the gateway serves, and what reaches the downstream by it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::h2::{End, H2};
use crate::support::http::{Connection, assert_problem, request, send};
use crate::support::wait_until;

/// One route for `/a/…` to `api`, with these further settings, and `rest` of the file.
fn config(api: &Downstream, route: &str, rest: &str) -> String {
    format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\ntimeout = \"20s\"\nsettle = \"2s\"\n\
         [[route]]\nname = \"a\"\npath = \"/a/{{x}}\"\nresource = \"a:{{x}}\"\ntokens = \"ordered\"\n\
         upstream = \"api\"\n{route}{rest}",
        api.address
    )
}

/// Asks for a reload, and waits until it is done.
#[track_caller]
fn reload(gateway: &Gateway, result: &str) {
    let before = gateway.config_reloads(result);
    gateway.signal(Signal::HUP);
    wait_until(&format!("the configuration is {result}"), || {
        gateway.config_reloads(result) > before
    });
}

#[track_caller]
fn assert_refused(gateway: &Gateway, words: &[&str]) {
    reload(gateway, "refused");
    wait_until(&format!("the log says {words:?}"), || {
        gateway.log().iter().any(|line| {
            let is_refusal =
                line["message"].as_str().is_some_and(|text| text.contains("was refused"));
            let mistakes = line["mistakes"].as_str().unwrap_or_default();
            is_refusal && words.iter().all(|word| mistakes.contains(word))
        })
    });
}

#[test]
fn at_sighup_routes_and_limits_change_for_old_and_new_connections() {
    let (api, other) = (Downstream::start(), Downstream::start());
    let gateway = Gateway::with_config(&config(&api, "", ""));
    let mut open = Connection::open(gateway.proxy);
    let put =
        |path: &str, body: &str| request("PUT", path, &[("Fencing-Token", "1")], body.as_bytes());
    assert_eq!(open.write(put("/a/1", "first")).read().status, 200);
    assert_eq!(open.write(put("/b/1", "none")).read().code(), "no_route");

    let more = format!(
        "max_body = \"4\"\n[[upstream]]\nname = \"other\"\nurl = \"http://{}\"\n\
         [[route]]\nname = \"b\"\npath = \"/b/{{x}}\"\nupstream = \"other\"\ntokens = \"ordered\"\n",
        other.address
    );
    gateway.configure(&config(&api, &more, ""));
    reload(&gateway, "applied");
    assert_eq!(open.write(put("/b/1", "x")).read().status, 200);
    assert_eq!(send(gateway.proxy, "PUT", "/b/1", &[("Fencing-Token", "1")], b"x").status, 200);
    assert_eq!(other.seen().len(), 2);
    assert_eq!(open.write(put("/a/1", "12345")).read().code(), "body_too_large");
    assert_eq!(gateway.mark("a:1"), Some(1), "marks stay");
    assert_eq!(gateway.put("/a/1", 0, "").code(), "malformed_fencing_token");
    assert_eq!(api.seen().len(), 1);
}

#[test]
fn a_request_under_way_ends_with_the_routes_that_it_began_with() {
    let api = Downstream::start();
    api.behave("/a/1", Behaviour::Hold);
    let mut gateway = Gateway::with_config(&config(&api, "", ""));
    let proxy = gateway.proxy;
    let slow =
        thread::spawn(move || send(proxy, "PUT", "/a/1", &[("Fencing-Token", "5")], b"slow"));
    api.wait_for(1);
    // The route is gone, and the upstream with it.
    let elsewhere = Downstream::start();
    gateway.configure(&config(&elsewhere, "", "").replace("/a/{x}", "/c/{x}"));
    reload(&gateway, "applied");
    assert_eq!(gateway.put("/a/1", 6, "late").code(), "no_route");
    api.let_go("/a/1");
    assert_eq!(slow.join().expect("no panic").status, 200);
    assert_eq!((api.seen().len(), elsewhere.seen().len()), (1, 0));
    assert!(gateway.stop().success());
}

#[test]
fn a_newer_write_by_the_new_table_waits_for_an_older_one_by_the_old() {
    let api = Downstream::start();
    api.behave("/a/1", Behaviour::Hold);
    let gateway = Gateway::with_config(&config(&api, "wait = \"20s\"\ndrain = \"20s\"\n", ""));
    let proxy = gateway.proxy;
    let put = move |token: &'static str| {
        thread::spawn(move || send(proxy, "PUT", "/a/1", &[("Fencing-Token", token)], b"x"))
    };
    let older = put("1");
    api.wait_for(1);
    let other = Downstream::start();
    let changed =
        config(&other, "wait = \"20s\"\ndrain = \"15s\"\n", "").replace("\"2s\"", "\"1ms\"");
    gateway.configure(&changed);
    reload(&gateway, "applied");
    let newer = put("2");
    wait_until("the newer one is known", || gateway.mark("a:1") == Some(2));
    assert_eq!(other.seen().len(), 0, "it waits");
    api.let_go("/a/1");
    assert_eq!(older.join().expect("no panic").status, 200);
    assert_eq!(newer.join().expect("no panic").status, 200);
    let over = api.seen()[0].ended.expect("it is over");
    assert!(over <= other.seen()[0].began);
}

#[test]
fn a_write_that_is_cut_after_a_reload_settles_as_it_was_sent() {
    let api = Downstream::start();
    api.behave("/a/1", Behaviour::Silence);
    let gateway = Gateway::with_config(&config(&api, "drain = \"0s\"\nwait = \"20s\"\n", ""));
    let proxy = gateway.proxy;
    let older = thread::spawn(move || send(proxy, "PUT", "/a/1", &[("Fencing-Token", "1")], b"x"));
    api.wait_for(1);
    // A settle time of 2 s was promised for it.
    let other = Downstream::start();
    let changed =
        config(&other, "drain = \"0s\"\nwait = \"20s\"\n", "").replace("\"2s\"", "\"1ms\"");
    gateway.configure(&changed);
    reload(&gateway, "applied");
    assert_eq!(gateway.put("/a/1", 2, "y").status, 200);
    assert_problem(&older.join().expect("no panic"), 502, "upstream_outcome_unknown", "unknown");
    let cut = api.seen()[0].ended.expect("it was cut");
    let waited = other.seen()[0].began.duration_since(cut);
    assert!(waited.as_millis() >= 1900, "{waited:?}");
}

#[test]
fn a_bad_file_is_refused_whole_with_all_mistakes_and_the_old_one_stays() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&config(&api, "", ""));
    gateway.configure(&config(&api, "drain = \"soon\"\nmax_body = \"1\"\nnonsense = 1\n", ""));
    assert_refused(&gateway, &["route.drain", "nonsense"]);
    assert_eq!(gateway.put("/a/1", 1, "longer than one").status, 200);
    gateway.configure("this is not TOML");
    assert_refused(&gateway, &["not TOML"]);
    gateway.configure(&config(&api, "fenced = []\n", ""));
    assert_refused(&gateway, &["nothing is fenced"]);
    assert_eq!(send(gateway.proxy, "PUT", "/a/1", &[], b"").code(), "fencing_token_required");
    assert_eq!(gateway.config_reloads("applied"), 0);
}

#[test]
fn what_needs_a_restart_is_named_and_nothing_else_is_taken_over() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&config(&api, "", ""));
    gateway.configure(&config(
        &api,
        "max_body = \"1\"\n",
        "[coordinator]\nurl = \"etcd://127.0.0.1:1\"\n",
    ));
    assert_refused(&gateway, &["coordinator.url", "restart"]);
    assert_eq!(gateway.put("/a/1", 1, "longer than one").status, 200);
}

#[test]
fn another_name_for_a_fenced_resource_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&config(&api, "", ""));
    gateway.configure(&config(&api, "", "").replace("a:{x}", "b:{x}"));
    assert_refused(&gateway, &["\"a:~1~\"", "\"b:~1~\"", "stop every gateway"]);
    let special = "[[route]]\nname = \"s\"\npath = \"/a/special\"\nupstream = \"api\"\n";
    gateway.configure(&config(&api, "", special));
    assert_refused(&gateway, &["/a/special"]);
    assert_eq!(gateway.put("/a/special", 1, "x").status, 200);
    assert_eq!(gateway.mark("a:special"), Some(1));
}

#[test]
fn a_fence_that_is_taken_away_is_put_on_record() {
    let api = Downstream::start();
    let rest = "[[route]]\nname = \"z\"\npath = \"/z\"\nupstream = \"api\"\n";
    let gateway = Gateway::with_config(&config(&api, "", rest));
    gateway.configure(&config(&api, "mode = \"observe\"\n", rest));
    reload(&gateway, "applied");
    wait_until("it is on record", || {
        gateway.log().iter().any(|line| {
            line["message"] == "a route protects less than before"
                && line["route"] == "a"
                && line["level"] == "WARN"
                && line["what"].as_str().is_some_and(|what| what.contains("PUT"))
        })
    });
    assert_eq!(send(gateway.proxy, "PUT", "/a/1", &[], b"").status, 200);
}

#[test]
fn a_changed_file_is_taken_over_by_itself() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&config(&api, "", ""));
    gateway.configure(&config(&api, "max_body = \"1\"\n", ""));
    wait_until("it is taken over", || gateway.config_reloads("applied") == 1);
    assert_eq!(gateway.put("/a/1", 1, "longer than one").code(), "body_too_large");
    gateway.configure("nonsense");
    wait_until("it is refused", || gateway.config_reloads("refused") == 1);
}

#[test]
fn a_turned_link_as_kubernetes_makes_it_is_a_change() {
    let api = Downstream::start();
    let mut gateway = Gateway::with_config(&config(&api, "", ""));
    gateway.stop();
    let (file, dir) = (gateway.config_path(), gateway.config_path().with_extension("d"));
    let text = fs::read_to_string(&file).expect("written at the start");
    let version = |name: &str, text: &str| {
        let of = dir.join(name);
        fs::create_dir_all(&of).expect("a writable directory");
        fs::write(of.join("fencegate.toml"), text).expect("a writable directory");
        // Turned in one step, as a ConfigMap is.
        symlink(name, dir.join("new")).expect("a writable directory");
        fs::rename(dir.join("new"), dir.join("..data")).expect("a writable directory");
    };
    version("v1", &text);
    fs::remove_file(&file).expect("it is there");
    symlink(Path::new("fencegate.d/..data/fencegate.toml"), &file).expect("a writable directory");
    gateway.start();
    version("v2", &text.replace("a:{x}", "a:{x}\"\nmax_body = \"1"));
    wait_until("it is taken over", || gateway.config_reloads("applied") == 1);
    assert_eq!(gateway.put("/a/1", 1, "longer than one").code(), "body_too_large");
}

#[test]
fn what_upstreams_are_told_about_clients_and_whom_that_is_believed_changes() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&config(&api, "", ""));
    let mut open = Connection::open(gateway.proxy);
    let put = || {
        let fields = [("Fencing-Token", "1"), ("X-Forwarded-For", "192.0.2.7")];
        request("PUT", "/a/1", &fields, b"x")
    };
    let told = |connection: &mut Connection| {
        assert_eq!(connection.write(put()).read().status, 200);
        let seen = api.seen();
        seen.last().expect("it was forwarded").header("x-forwarded-for").map(str::to_owned)
    };
    assert_eq!(told(&mut open), None);
    gateway.configure_listener("forwarded = \"x-forwarded\"\n", &config(&api, "", ""));
    reload(&gateway, "applied");
    assert_eq!(told(&mut open).as_deref(), Some("127.0.0.1"));
    let trusted = "forwarded = \"x-forwarded\"\ntrusted_proxies = [\"127.0.0.1\"]\n";
    gateway.configure_listener(trusted, &config(&api, "", ""));
    reload(&gateway, "applied");
    assert_eq!(told(&mut open).as_deref(), Some("127.0.0.1"), "it came before");
    let mut new = Connection::open(gateway.proxy);
    assert_eq!(told(&mut new).as_deref(), Some("192.0.2.7, 127.0.0.1"));
}

#[test]
fn an_upstream_changes_its_protocol_and_routes_are_told_by_metrics_as_they_are() {
    let api = Downstream::start();
    let rest = "[[route]]\nname = \"z\"\npath = \"/z\"\nupstream = \"api\"\n[limits]\n";
    let gateway = Gateway::with_config(&config(&api, "", rest));
    let metrics = || gateway.admin_text("/metrics");
    let info = |route: &str| -> Vec<String> {
        let begins = format!("fencegate_route_info{{mode=\"{route}\"");
        let metrics = metrics();
        metrics.lines().filter(|line| line.starts_with(&begins)).map(str::to_owned).collect()
    };
    assert_eq!((info("enforce").len(), info("observe").len()), (2, 0));
    let limits = "[limits]\nconnections = 77\ncells = 78\n";
    gateway.configure(&config(&api, "mode = \"observe\"\ndrain = \"3s\"\n", limits));
    reload(&gateway, "applied");
    assert_eq!((info("enforce").len(), info("observe").len()), (0, 1), "{}", metrics());
    for line in [
        "fencegate_connections_limit 77",
        "fencegate_cells_limit 78",
        "fencegate_route_drain_limit_seconds{route=\"a\"} 3",
    ] {
        assert!(metrics().lines().any(|found| found == line), "{line}: {}", metrics());
    }
    assert!(!metrics().contains("fencegate_route_settle_seconds{route=\"z\"}"));

    // Its connections speak HTTP/2 from now on, which this API takes for nonsense.
    let settle = "settle = \"2s\"\n";
    let changed = config(&api, "", "").replace(settle, &format!("{settle}protocol = \"http2\"\n"));
    gateway.configure(&changed);
    reload(&gateway, "applied");
    let answer = gateway.put("/a/1", 1, "x");
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(!api.seen().iter().any(|seen| seen.method == "PUT"));
    gateway.configure(&config(&api, "", ""));
    reload(&gateway, "applied");
    wait_until("it is over", || gateway.put("/a/1", 1, "x").status == 200);
}

#[test]
fn a_route_that_ignores_case_from_now_on_would_rename_and_is_refused() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&config(&api, "", ""));
    gateway.configure(&config(&api, "case = \"ignore\"\n", ""));
    assert_refused(&gateway, &["ignores case"]);
    assert_eq!(gateway.put("/a/X", 1, "x").status, 200);
    assert_eq!(gateway.mark("a:X"), Some(1));
}

#[test]
fn no_request_is_lost_or_doubled_while_configurations_change() {
    let (api, other) = (Downstream::start(), Downstream::start());
    let gateway = Gateway::with_config(&config(&api, "", ""));
    let (proxy, stop) = (gateway.proxy, Arc::new(AtomicBool::new(false)));
    let http1 = |number: usize| {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            let mut connection = Connection::open(proxy);
            let path = format!("/a/{number}");
            let mut answered = 0;
            while !stop.load(Ordering::Relaxed) {
                let put = request("PUT", &path, &[("Fencing-Token", "1")], b"x");
                assert_eq!(connection.write(put).read().status, 200);
                answered += 1;
            }
            answered
        })
    };
    let stop_http2 = Arc::clone(&stop);
    let http2 = thread::spawn(move || {
        let mut client = H2::open(proxy);
        let mut streams = (1..).step_by(2);
        let mut answered = 0;
        while !stop_http2.load(Ordering::Relaxed) {
            let stream = streams.next().expect("endless");
            client.put(stream, "/a/http2", &[("fencing-token", "1")], b"x");
            assert_eq!(client.end_of(stream), End::Answered("done\n".into()));
            answered += 1;
        }
        answered
    });
    let clients = [http1(1), http1(2), http2];
    for round in 0..20 {
        // Another upstream each time, and other limits.
        let to = if round % 2 == 0 { &other } else { &api };
        let limits = format!("[limits]\nclient_concurrency = {}\n", 50 + round);
        let served = to.seen().len();
        gateway.configure(&config(to, "", &limits));
        reload(&gateway, "applied");
        wait_until("it is in use", || to.seen().len() > served);
    }
    stop.store(true, Ordering::Relaxed);
    let answered: usize = clients.map(|client| client.join().expect("no panic")).iter().sum();
    assert_eq!(api.seen().len() + other.seen().len(), answered);
}

#[test]
fn a_credential_of_an_upstream_is_followed_after_a_reload_as_before() {
    let api = Downstream::start();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("credential");
    let rotate = |value: &str| {
        fs::write(dir.path().join("new"), value).expect("a writable directory");
        fs::rename(dir.path().join("new"), &file).expect("a writable directory");
    };
    rotate("Bearer one");
    let settle = "settle = \"2s\"\n";
    let with_credential = |settings: &str| {
        let keys = format!("{settle}{settings}credential_file = \"{}\"\n", file.display());
        config(&api, "", "").replace(settle, &keys)
    };
    let gateway = Gateway::with_config(&with_credential(""));
    let shown = || {
        assert_eq!(gateway.put("/a/1", 1, "x").status, 200);
        let seen = api.seen();
        seen.last().expect("it was forwarded").header("authorization").map(str::to_owned)
    };
    assert_eq!(shown().as_deref(), Some("Bearer one"));
    // A new set of connections, with what is in the same file.
    gateway.configure(&with_credential("idle = \"3s\"\n"));
    reload(&gateway, "applied");
    assert_eq!(shown().as_deref(), Some("Bearer one"));
    rotate("Bearer two");
    wait_until("it is followed", || shown().as_deref() == Some("Bearer two"));
    rotate("Bearer three");
    reload(&gateway, "applied");
    assert_eq!(shown().as_deref(), Some("Bearer three"), "read anew at the signal");
    gateway.configure(&config(&api, "", ""));
    assert_refused(&gateway, &["upstream.credential_file", "restart"]);
    assert_eq!(shown().as_deref(), Some("Bearer three"));
}

#[test]
fn a_name_that_is_taken_away_cannot_come_back_as_another_while_its_writes_may_be_under_way() {
    let api = Downstream::start();
    let with = |route: &str| {
        format!(
            "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\n\
             [[route]]\nname = \"kept\"\npath = \"/kept/{{x}}\"\ntokens = \"ordered\"\n{route}",
            api.address
        )
    };
    let rest = "[[route]]\nname = \"rest\"\npath = \"/{*rest}\"\ntokens = \"ordered\"\n";
    let gateway = Gateway::with_config(&with(rest));
    api.behave("/late", Behaviour::Hold);
    let proxy = gateway.proxy;
    let older =
        thread::spawn(move || send(proxy, "PUT", "/late", &[("Fencing-Token", "1")], b"older"));
    api.wait_for(1);
    gateway.configure(&with(""));
    reload(&gateway, "applied");
    gateway.configure(&with(&format!("{rest}resource = \"r:{{path}}\"\n")));
    assert_refused(&gateway, &["before the present one"]);
    // As it was it may.
    gateway.configure(&with(rest));
    reload(&gateway, "applied");
    api.let_go("/late");
    assert_eq!(older.join().expect("it ended").status, 200);
    api.behave("/late", Behaviour::Answer);
    assert_eq!(gateway.put("/late", 1, "again").status, 200);
}

#[test]
fn a_name_that_was_taken_away_can_come_back_as_another_once_its_writes_are_settled() {
    let api = Downstream::start();
    let with = |route: &str| {
        format!(
            "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\ntimeout = \"1s\"\nsettle = \"1s\"\n\
             [[route]]\nname = \"kept\"\npath = \"/kept/{{x}}\"\ntokens = \"ordered\"\n{route}",
            api.address
        )
    };
    let rest = "[[route]]\nname = \"rest\"\npath = \"/{*rest}\"\ntokens = \"ordered\"\n";
    let gateway = Gateway::with_config(&with(rest));
    assert_eq!(gateway.put("/x", 1, "older").status, 200);
    gateway.configure(&with(""));
    reload(&gateway, "applied");
    let applied = gateway.config_reloads("applied");
    gateway.configure(&with(&format!("{rest}resource = \"r:{{path}}\"\n")));
    reload(&gateway, "refused");
    wait_until("the other name is taken", || {
        gateway.signal(Signal::HUP);
        gateway.config_reloads("applied") > applied
    });
    assert_eq!(gateway.put("/x", 1, "newer").status, 200);
}
