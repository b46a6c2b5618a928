//! What happens at each limit: the client is told, the downstream sees nothing of it, and others are served.

mod crowd;
mod http2;

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};

use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, Connection, assert_problem, request, send};
use crate::support::{SOON, wait_until};

/// A gateway of one thread with these further settings of its upstream, its route and its limits.
fn config(api: &Downstream, upstream: &str, route: &str, limits: &str) -> String {
    format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\ntimeout = \"20s\"\nsettle = \"2s\"\n{upstream}\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n{route}\
         [limits]\n{limits}",
        api.address
    )
}

fn limited(api: &Downstream, limits: &str) -> Gateway {
    Gateway::with_config(&config(api, "", "", limits))
}

fn put(path: &str) -> Vec<u8> {
    request("PUT", path, &[("Fencing-Token", "1")], b"x")
}

/// A connection from another machine, as far as the gateway can tell.
fn connect_from(last: u8, to: SocketAddr) -> Connection {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    socket.bind(&from.into()).expect("all of 127/8 is ours");
    socket.connect(&to.into()).expect("the listener listens");
    socket.set_read_timeout(Some(SOON)).expect("a socket");
    Connection(socket.into())
}

#[track_caller]
fn assert_overloaded(answer: &Answer) {
    assert_problem(answer, 503, "overloaded", "not_forwarded");
    let seconds = answer.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
    assert!(seconds.is_some_and(|seconds| seconds > 0), "{answer:?}");
}

fn hits(gateway: &Gateway, limit: &str) -> u64 {
    let metrics = gateway.admin_text("/metrics");
    let name = format!("fencegate_limit_hits_total{{limit=\"{limit}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{name} is missing"))
}

fn has_metric(gateway: &Gateway, line: &str) -> bool {
    let metrics = gateway.admin_text("/metrics");
    metrics.lines().any(|found| found == line)
}

/// A write that the downstream holds.
fn held(gateway: &Gateway, api: &Downstream, path: &'static str) -> JoinHandle<Answer> {
    api.behave(path, Behaviour::Hold);
    let (proxy, before) = (gateway.proxy, api.seen().len());
    let write = thread::spawn(move || send(proxy, "PUT", path, &[("Fencing-Token", "1")], b"x"));
    api.wait_for(before + 1);
    write
}

#[test]
fn connections_beyond_the_limit_are_told_so_and_places_come_free() {
    let api = Downstream::start();
    let gateway = limited(&api, "connections = 2\n");
    let mut open = [(); 2].map(|()| Connection::open(gateway.proxy));
    for connection in &mut open {
        assert_eq!(connection.write(put("/x")).read().status, 200);
    }
    let mut refused = Connection::open(gateway.proxy);
    assert_overloaded(&refused.write(put("/x")).read());
    assert!(refused.is_closed_by_peer());
    assert_eq!((api.seen().len(), hits(&gateway, "limits.connections")), (2, 1));
    let [_stays, ends] = open;
    drop(ends);
    wait_until("the place is free", || {
        Connection::try_open(gateway.proxy)
            .and_then(|mut connection| connection.try_exchange(put("/x")))
            .is_ok_and(|answer| answer.status == 200)
    });
}

#[test]
fn one_client_cannot_have_all_connections() {
    let api = Downstream::start();
    let gateway = limited(&api, "client_connections = 2\n");
    let mut open = [(); 2].map(|()| connect_from(7, gateway.proxy));
    for connection in &mut open {
        assert_eq!(connection.write(put("/x")).read().status, 200);
    }
    let mut refused = connect_from(7, gateway.proxy);
    assert_overloaded(&refused.write(put("/x")).read());
    assert!(refused.is_closed_by_peer());
    assert_eq!(connect_from(8, gateway.proxy).write(put("/x")).read().status, 200);
    assert_eq!((api.seen().len(), hits(&gateway, "limits.client_connections")), (3, 1));
}

#[test]
fn a_client_s_rate_holds_for_all_its_connections_and_for_what_is_refused() {
    let api = Downstream::start();
    let gateway = limited(&api, "client_rate = \"4/m\"\n");
    let answers: Vec<_> =
        (0..3).map(|_| connect_from(7, gateway.proxy).write(put("/x")).read().status).collect();
    assert_eq!(answers, [200; 3]);
    // A malformed one counts as well.
    let bad = connect_from(7, gateway.proxy).write(put("/%zz")).read();
    assert_eq!(bad.status, 400);
    let mut connection = connect_from(7, gateway.proxy);
    assert_overloaded(&connection.write(put("/x")).read());
    assert_overloaded(&connection.write(put("/%zz")).read());
    assert_overloaded(&connection.write(request("GET", "/x", &[], b"")).read());
    assert_eq!(connect_from(8, gateway.proxy).write(put("/x")).read().status, 200);
    assert_eq!((api.seen().len(), hits(&gateway, "limits.client_rate")), (4, 3));
}

#[test]
fn what_a_client_left_behind_counts_until_it_is_over() {
    let api = Downstream::start();
    let gateway = limited(&api, "client_concurrency = 1\n");
    api.behave("/slow", Behaviour::Hold);
    let mut leaves = connect_from(7, gateway.proxy);
    leaves.write(put("/slow"));
    api.wait_for(1);
    drop(leaves);
    assert_overloaded(&connect_from(7, gateway.proxy).write(put("/x")).read());
    assert_eq!(connect_from(8, gateway.proxy).write(put("/x")).read().status, 200);
    api.let_go("/slow");
    wait_until("it is over", || {
        connect_from(7, gateway.proxy).write(put("/x")).read().status == 200
    });
    assert!(hits(&gateway, "limits.client_concurrency") >= 1);
}

#[test]
fn a_route_s_concurrency_and_rate_are_its_own() {
    let api = Downstream::start();
    let other = "[[route]]\nname = \"other\"\npath = \"/other/{x}\"\ntokens = \"ordered\"\nrate = \"2/m\"\n";
    let gateway = Gateway::with_config(&config(&api, "", &format!("concurrency = 1\n{other}"), ""));
    let slow = held(&gateway, &api, "/slow");
    assert_overloaded(&Connection::open(gateway.proxy).write(put("/x")).read());
    let mut connection = Connection::open(gateway.proxy);
    assert_eq!(connection.write(put("/other/1")).read().status, 200);
    assert_eq!(connection.write(put("/other/2")).read().status, 200);
    assert_overloaded(&connection.write(put("/other/3")).read());
    api.let_go("/slow");
    assert_eq!(slow.join().expect("no panic").status, 200);
    assert_eq!(connection.write(put("/x")).read().status, 200);
    assert_eq!(api.seen().len(), 4);
    assert_eq!((hits(&gateway, "route.concurrency"), hits(&gateway, "route.rate")), (1, 1));
}

#[test]
fn requests_wait_for_the_upstream_in_turn_and_up_to_a_number() {
    let api = Downstream::start();
    let upstream = "connections = 1\nwaiting = 1\nconnect_timeout = \"20s\"\n";
    let config = config(&api, upstream, "", "");
    let gateway = Gateway::with_config(&format!("{config}[shutdown]\ngrace = \"5s\"\n"));
    // More than one thread would have a connection each.
    let mut gateway = with_one_thread(gateway);
    let slow = held(&gateway, &api, "/slow");
    let proxy = gateway.proxy;
    let second =
        thread::spawn(move || send(proxy, "PUT", "/second", &[("Fencing-Token", "1")], b"x"));
    wait_until("the second one waits", || has_metric(&gateway, "fencegate_in_flight_writes 2"));
    let mut third = Connection::open(gateway.proxy);
    assert_overloaded(&third.write(put("/third")).read());
    assert_eq!(api.seen().len(), 1, "none but the first was sent");
    api.let_go("/slow");
    assert_eq!(slow.join().expect("no panic").status, 200);
    assert_eq!(second.join().expect("no panic").status, 200);
    assert_eq!(third.write(put("/third")).read().status, 200);
    assert!(hits(&gateway, "upstream.connections") >= 1);
    assert!(gateway.stop().success());
}

#[test]
fn who_waits_for_the_upstream_in_vain_is_told_that_nothing_was_sent() {
    let api = Downstream::start();
    let upstream = "connections = 1\nconnect_timeout = \"300ms\"\n";
    let gateway = with_one_thread(Gateway::with_config(&config(&api, upstream, "", "")));
    let slow = held(&gateway, &api, "/slow");
    assert_overloaded(&Connection::open(gateway.proxy).write(put("/x")).read());
    api.let_go("/slow");
    assert_eq!(slow.join().expect("no panic").status, 200);
    assert_eq!(gateway.put("/x", 2, "y").status, 200, "the resource is free");
    assert_eq!(gateway.put("/x", 1, "late").status, 412);
}

fn with_one_thread(mut gateway: Gateway) -> Gateway {
    gateway.stop();
    let text = std::fs::read_to_string(gateway.config_path()).expect("written at the start");
    let text = text.replacen("[listen]\n", "[listen]\nworkers = 1\n", 1);
    std::fs::write(gateway.config_path(), text).expect("a writable directory");
    gateway.start();
    gateway
}

#[test]
fn the_last_answer_on_a_connection_says_so() {
    let api = Downstream::start();
    let gateway = limited(&api, "keep_alive_requests = 3\n");
    let mut connection = Connection::open(gateway.proxy);
    for is_last in [false, false, true] {
        let answer = connection.write(put("/x")).read();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("connection") == Some("close"), is_last, "{answer:?}");
    }
    assert!(connection.is_closed_by_peer());
}

#[test]
fn an_old_connection_ends_with_an_answer_and_not_between() {
    let api = Downstream::start();
    let gateway = limited(&api, "keep_alive_age = \"200ms\"\nidle_timeout = \"20s\"\n");
    let mut connection = Connection::open(gateway.proxy);
    wait_until("an answer is the last", || {
        let answer = connection.write(put("/x")).read();
        assert_eq!(answer.status, 200);
        answer.header("connection") == Some("close")
    });
    assert!(connection.is_closed_by_peer());
}

#[test]
fn a_connection_that_rests_too_long_is_closed() {
    let api = Downstream::start();
    let gateway = limited(&api, "idle_timeout = \"300ms\"\n");
    let mut connection = Connection::open(gateway.proxy);
    assert_eq!(connection.write(put("/x")).read().status, 200);
    assert!(connection.is_closed_by_peer());
}

#[test]
fn limits_change_at_a_reload() {
    let api = Downstream::start();
    let gateway = limited(&api, "connections = 100\n");
    let mut connection = Connection::open(gateway.proxy);
    assert_eq!(connection.write(put("/x")).read().status, 200);
    gateway.configure(&config(&api, "", "", "client_rate = \"1/m\"\nclient_connections = 1\n"));
    gateway.signal(Signal::HUP);
    wait_until("the rate holds", || connection.write(put("/x")).read().status == 503);
    assert_overloaded(&Connection::open(gateway.proxy).write(put("/x")).read());
    assert_eq!(hits(&gateway, "limits.client_connections"), 1);
}

#[test]
fn acquisitions_that_wait_are_bounded_for_each_resource_and_holders_can_renew() {
    let api = Downstream::start();
    let gateway = limited(&api, "resource_lease_waiters = 1\nlease_waiters = 2\n");
    let token = gateway.acquire("a", "holder", 60_000);
    gateway.acquire("b", "holder", 60_000);
    let wait = |resource: &'static str, owner: &str| {
        let body = format!("{{\"owner\":\"{owner}\",\"ttl_ms\":60000,\"wait_ms\":60000}}");
        let mut connection = Connection::open(gateway.leases);
        connection.write(request("POST", &format!("/v1/leases/{resource}"), &[], body.as_bytes()));
        connection
    };
    let first = wait("a", "first");
    wait_until("it waits", || has_metric(&gateway, "fencegate_lease_waiters 1"));
    assert_overloaded(&wait("a", "second").read());
    let _other = wait("b", "first");
    wait_until("both wait", || has_metric(&gateway, "fencegate_lease_waiters 2"));
    assert_overloaded(&wait("c", "one too many").read());
    assert_eq!(gateway.renew("a", "holder", token, 60_000).status, 200);
    assert_eq!(gateway.release("a", "holder", token).status, 204);
    let mut first = first;
    assert_eq!(first.read().status, 201);
    assert_eq!(hits(&gateway, "limits.resource_lease_waiters"), 1);
    assert_eq!(hits(&gateway, "limits.lease_waiters"), 1);
}

#[test]
fn bodies_of_the_lease_api_are_bounded() {
    let api = Downstream::start();
    let gateway = limited(&api, "api_body_size = \"1KiB\"\n");
    let owner = "x".repeat(2000);
    let answer = gateway.try_acquire("a", &owner, 1000, 0);
    assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"));
}
