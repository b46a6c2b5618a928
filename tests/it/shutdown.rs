//! The end in good order: nothing that was promised is lost, and nothing hangs.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::{Answer, Connection, request};
use crate::support::wait_until;

fn guard(api: &Downstream, shutdown: &str) -> Gateway {
    Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"1s\"\n\
         [[route]]\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n[shutdown]\n{shutdown}",
        api.address
    ))
}

fn put(path: &str, token: u64, body: &str) -> Vec<u8> {
    request("PUT", path, &[("Fencing-Token", &token.to_string())], body.as_bytes())
}

fn put_later(gateway: &Gateway, path: &'static str) -> thread::JoinHandle<std::io::Result<Answer>> {
    let proxy = gateway.proxy;
    thread::spawn(move || Connection::try_open(proxy)?.try_exchange(put(path, 1, "x")))
}

#[test]
fn under_load_every_write_that_was_answered_is_there_once_and_nothing_hangs() {
    let api = Downstream::start();
    let paths: Vec<String> = (0..4).map(|number| format!("/x/{number}")).collect();
    for path in &paths {
        api.behave(path, Behaviour::Slow(Duration::from_millis(5)));
    }
    let mut gateway = guard(&api, "unready = \"200ms\"\ngrace = \"10s\"\n");
    let bodies = AtomicU64::new(0);
    let answered = Mutex::new(Vec::new());
    let stopped = thread::scope(|scope| {
        for client in 0..12 {
            let (proxy, path) = (gateway.proxy, &paths[client % paths.len()]);
            let (bodies, answered) = (&bodies, &answered);
            scope.spawn(move || {
                // A connection that was closed is opened anew until the listener is gone.
                while let Ok(mut connection) = Connection::try_open(proxy) {
                    loop {
                        let body = bodies.fetch_add(1, Ordering::Relaxed).to_string();
                        let token = 1 + bodies.load(Ordering::Relaxed) / 100;
                        let answer = connection.try_exchange(put(path, token, &body));
                        let Ok(answer) = answer else { break };
                        if answer.status == 200 {
                            answered.lock().expect("no panic").push(body);
                        } else {
                            assert_eq!(answer.outcome(), "not_forwarded", "{answer:?}");
                        }
                    }
                }
            });
        }
        api.wait_for(300);
        gateway.signal(Signal::TERM);
        Instant::now()
    });
    assert!(gateway.wait().success());
    assert!(stopped.elapsed() < Duration::from_secs(8), "well within the grace");

    let mut times: HashMap<Vec<u8>, u32> = HashMap::new();
    for seen in api.seen() {
        *times.entry(seen.body).or_default() += 1;
    }
    assert!(times.values().all(|times| *times == 1), "a body came twice");
    for body in answered.into_inner().expect("no panic") {
        assert!(times.contains_key(body.as_bytes()), "{body} was answered and never came");
    }
    assert_eq!(gateway.store().grants(), []);
}

#[test]
fn unready_comes_first_and_the_listener_closes_later() {
    let api = Downstream::start();
    let mut gateway = guard(&api, "unready = \"1s\"\n");
    assert_eq!(gateway.admin("/readyz").status, 200);
    gateway.signal(Signal::TERM);
    let told = Instant::now();

    wait_until("it is not ready", || gateway.admin("/readyz").status == 503);
    assert_eq!(gateway.put("/x", 1, "still welcome").status, 200);
    assert!(told.elapsed() < Duration::from_secs(1), "too slow for this test to mean anything");

    wait_until("the listener is closed", || Connection::try_open(gateway.proxy).is_err());
    assert!(told.elapsed() >= Duration::from_secs(1));
    assert!(gateway.wait().success());
    assert_eq!(gateway.store().grants(), []);
}

#[test]
fn a_write_in_flight_finishes_and_its_grant_is_given_back() {
    let api = Downstream::start();
    let mut gateway = guard(&api, "grace = \"20s\"\n");
    api.behave("/x", Behaviour::Hold);
    let write = put_later(&gateway, "/x");
    api.wait_for(1);
    gateway.signal(Signal::TERM);
    wait_until("the listener is closed", || Connection::try_open(gateway.proxy).is_err());
    // A worker can renew for as long as its write is under way.
    assert_eq!(gateway.try_acquire("/x", "a", 1000, 0).status, 201);

    api.let_go("/x");

    assert_eq!(write.join().expect("no panic").expect("an answer").status, 200);
    assert!(gateway.wait().success());
    assert_eq!(gateway.store().grants(), []);
    assert_eq!(api.seen().len(), 1);
}

#[test]
fn a_write_whose_client_left_is_waited_for_too() {
    let api = Downstream::start();
    let mut gateway = guard(&api, "grace = \"20s\"\n");
    api.behave("/x", Behaviour::Hold);
    let mut client = Connection::open(gateway.proxy);
    client.write(put("/x", 1, "x"));
    api.wait_for(1);
    drop(client);
    gateway.signal(Signal::TERM);
    wait_until("the listener is closed", || Connection::try_open(gateway.proxy).is_err());

    api.let_go("/x");

    assert!(gateway.wait().success());
    assert_eq!(gateway.store().grants(), []);
}

#[test]
fn a_silent_downstream_is_cut_at_the_end_of_the_grace_and_the_next_start_waits() {
    let api = Downstream::start();
    let mut gateway = guard(&api, "grace = \"400ms\"\n");
    api.behave("/x", Behaviour::Silence);
    assert_eq!(gateway.put("/y", 1, "settled").status, 200);
    let write = put_later(&gateway, "/x");
    api.wait_for(2);
    gateway.signal(Signal::TERM);
    let told = Instant::now();

    assert!(gateway.wait().success());

    assert!(told.elapsed() >= Duration::from_millis(400));
    assert!(told.elapsed() < Duration::from_secs(5));
    let answer = write.join().expect("no panic").expect("its client is told");
    assert_eq!(answer.outcome(), "unknown");
    assert_eq!(gateway.store().grants(), [("/x".to_owned(), 1)]);
    api.behave("/x", Behaviour::Answer);
    let started = Instant::now();
    gateway.start();
    assert_eq!(gateway.put("/x", 2, "newer").status, 200);
    assert!(started.elapsed() >= Duration::from_secs(1), "the settle time");
    assert_eq!(api.tokens("/x"), [1, 2]);
}

#[test]
fn clients_that_wait_for_a_lease_or_a_drain_do_not_keep_the_process() {
    let api = Downstream::start();
    let mut gateway = guard(&api, "grace = \"400ms\"\n");
    gateway.acquire("/x", "a", 60_000);
    let leases = gateway.leases;
    let waiting = thread::spawn(move || {
        let body = r#"{"owner":"b","ttl_ms":1000,"wait_ms":20000}"#;
        let json = [("Content-Type", "application/json")];
        let ask = request("POST", "/v1/leases/%2Fx", &json, body.as_bytes());
        Connection::try_open(leases)?.try_exchange(ask)
    });
    api.behave("/y", Behaviour::Silence);
    let older = put_later(&gateway, "/y");
    api.wait_for(1);
    let proxy = gateway.proxy;
    let newer =
        thread::spawn(move || Connection::try_open(proxy)?.try_exchange(put("/y", 2, "newer")));
    wait_until("the newer one waits", || gateway.mark("/y") == Some(2));
    gateway.signal(Signal::TERM);
    let told = Instant::now();

    assert!(gateway.wait().success());

    assert!(told.elapsed() < Duration::from_secs(6));
    assert_eq!(waiting.join().expect("no panic").expect("it is told").code(), "overloaded");
    drop((older.join(), newer.join()));
    assert_eq!(api.tokens("/y"), [1]);
    assert_eq!(gateway.store().grants(), [("/y".to_owned(), 1)]);
}

#[test]
fn shutdown_ends_although_all_places_are_taken() {
    let api = Downstream::start();
    let mut gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"1s\"\ntimeout = \"10m\"\n\
         [[route]]\npath = \"/{{*rest}}\"\ntokens = \"ordered\"\n[shutdown]\ngrace = \"1s\"\n\
         [limits]\nconnections = 1\n",
        api.address
    ));
    api.behave("/x", Behaviour::Hold);
    let mut client = Connection::open(gateway.proxy);
    client.write(request("PUT", "/x", &[("Fencing-Token", "1")], b"x"));
    api.wait_for(1);
    // One more is accepted and waits for a place.
    let _other = Connection::open(gateway.proxy);
    thread::sleep(Duration::from_millis(300));
    gateway.signal(Signal::TERM);
    let told = Instant::now();
    gateway.wait();
    assert!(told.elapsed() < Duration::from_secs(10));
}
