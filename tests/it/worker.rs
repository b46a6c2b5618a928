//! The worker library against the real gateway: what a program sees of each refusal, and when it
//! is told that its lease is over.

#![allow(clippy::unwrap_used, reason = "clippy sees tests only in functions marked as such")]

use std::net::SocketAddr;
use std::time::Duration;

use fencegate::clock::Clock;
use fencegate::coordinator::PostgresSettings;
use fencegate::coordinator::etcd::{EtcdSettings, Layout};
use fencegate::problem::{Code, ProblemOutcome};
use fencegate::worker::{HeldLease, LeaseError, Leases, Lost, Refusal, Terms, WriteError, Writes};

use crate::servers;
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::{Gateway, TIGHT};
use crate::support::http::{Answer, exchange, raw};
use crate::support::wait_until;

/// Longer than anything takes.
const DEADLINE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(60);

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await.expect("it ends") })
}

fn terms(resource: &str, owner: &str, ttl: Duration) -> Terms {
    Terms { ttl, ..Terms::new(resource.parse().unwrap(), owner.parse().unwrap()) }
}

fn leases_of(gateway: &Gateway) -> Leases {
    Leases::api(&format!("http://{}", gateway.leases)).unwrap()
}

async fn hold(leases: &Leases, resource: &str, owner: &str) -> HeldLease {
    HeldLease::acquire(leases, Clock::new(), &terms(resource, owner, LONG)).await.unwrap()
}

async fn put(
    writes: &Writes,
    proxy: SocketAddr,
    path: &str,
) -> Result<reqwest::Response, WriteError> {
    let request = reqwest::Client::new().put(format!("http://{proxy}{path}")).body("x");
    writes.send(request.build().unwrap()).await
}

/// Sends a write that is refused; its code, and whether the work has to stop.
async fn refused(writes: &Writes, proxy: SocketAddr, path: &str) -> (Code, bool, ProblemOutcome) {
    let error = put(writes, proxy, path).await.expect_err("it is refused");
    let refusal = error.refusal().unwrap_or_else(|| panic!("{error:?}"));
    let stop = error.ends_the_work();
    assert_eq!(error.retry_after().is_some(), !stop && refusal.code.is_retryable(), "{refusal:?}");
    (refusal.code, stop, error.outcome())
}

#[test]
fn a_write_carries_the_token_and_the_answer_of_the_api_comes_back_whole() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    let problem = b"HTTP/1.1 412 Precondition Failed\r\nContent-Type: application/problem+json\r\n\
                    Content-Length: 16\r\nX-Own: 1\r\n\r\n{\"code\":\"stale\"}";
    api.behave("/own", Behaviour::Say(problem.to_vec(), true));
    block_on(async {
        let leases = leases_of(&gateway);
        let held = hold(&leases, "/x", "a").await;
        let http = reqwest::Client::new();
        let answer = put(&held.writes(&http), gateway.proxy, "/x").await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), answer.text().await.unwrap().as_str()),
            (200, "done\n")
        );
        assert_eq!(api.tokens("/x"), [held.token().get()]);

        let own = hold(&leases, "/own", "a").await;
        let answer = put(&own.writes(&http), gateway.proxy, "/own").await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["x-own"]),
            (412, &"1".parse().unwrap())
        );
        assert_eq!(answer.text().await.unwrap(), "{\"code\":\"stale\"}");
    });
}

#[test]
fn a_stale_write_is_final_and_says_who_is_newer() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    block_on(async {
        let leases = leases_of(&gateway);
        let (old, http) = (hold(&leases, "/x", "a").await, reqwest::Client::new());
        let old_writes = old.writes(&http);
        put(&old_writes, gateway.proxy, "/x").await.unwrap();
        let new = hold(&leases, "/x", "a").await;
        put(&new.writes(&http), gateway.proxy, "/x").await.unwrap();
        let error = put(&old_writes, gateway.proxy, "/x").await.unwrap_err();
        assert!(error.ends_the_work() && error.retry_after().is_none());
        let refusal = error.refusal().unwrap();
        assert_eq!(refusal.code, Code::StaleFencingToken);
        assert_eq!(refusal.highest_token, Some(new.token()));
        assert_eq!(refusal.presented_token, Some(old.token()));
        assert_eq!(refusal.resource.as_deref(), Some("/x"));
        assert!(refusal.trace_id.is_some());
    });
}

#[test]
fn each_refusal_is_an_error_of_its_own() {
    let api = Downstream::start();
    let nobody = servers::free_port();
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\ntimeout = \"300ms\"\nsettle = \"1s\"\n\
         [[upstream]]\nname = \"gone\"\nurl = \"http://127.0.0.1:{nobody}\"\n\
         [[route]]\nname = \"x\"\npath = \"/x/{{*rest}}\"\nresource = \"x\"\nupstream = \"api\"\n\
         drain = \"100ms\"\nwait = \"100ms\"\nmax_body = \"1KiB\"\n\
         [[route]]\nname = \"gone\"\npath = \"/gone\"\nresource = \"x\"\nupstream = \"gone\"\n{TIGHT}",
        api.address
    ));
    api.behave("/x/silent", Behaviour::Silence);
    api.behave("/x/rude", Behaviour::ResetInstead);
    block_on(async {
        use ProblemOutcome::{NotForwarded, Unknown};
        let (leases, http) = (leases_of(&gateway), reqwest::Client::new());
        let held = hold(&leases, "x", "a").await;
        let writes = held.writes(&http);
        for (path, expected) in [
            ("/elsewhere", (Code::NoRoute, false, NotForwarded)),
            ("/x/a;b", (Code::UnresolvableResource, false, NotForwarded)),
            ("/gone", (Code::UpstreamUnreachable, false, NotForwarded)),
            ("/x/silent", (Code::UpstreamTimeout, false, Unknown)),
            ("/x/rude", (Code::UpstreamOutcomeUnknown, false, Unknown)),
        ] {
            assert_eq!(refused(&writes, gateway.proxy, path).await, expected, "{path}");
        }
        let large = http.put(format!("http://{}/x/a", gateway.proxy)).body(vec![b'x'; 4096]);
        let error = writes.send(large.build().unwrap()).await.unwrap_err();
        assert_eq!(error.refusal().unwrap().code, Code::BodyTooLarge);

        // What the older token has in doubt keeps the newer one out for its settle time.
        let newer = hold(&leases, "x", "a").await;
        let (code, stop, outcome) = refused(&newer.writes(&http), gateway.proxy, "/x/a").await;
        assert_eq!((code, stop, outcome), (Code::FenceDraining, false, NotForwarded));
    });
}

/// For clients other than reqwest: the head and the body of an answer are enough.
#[test]
fn refusals_are_read_from_any_clients_answers() {
    let api = Downstream::start();
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\n{TIGHT}",
        api.address
    ));
    let large = format!("Fencing-Token: 1\r\nX-Large: {}\r\n", "x".repeat(32 * 1024));
    for (method, fields, code) in [
        ("PUT", "", Code::FencingTokenRequired),
        ("PUT", "Fencing-Token: 0x1\r\n", Code::MalformedFencingToken),
        ("PUT", "Fencing-Token: 1\r\nX-Fencing-Token: 2\r\n", Code::AmbiguousFencingToken),
        ("TRACE", "", Code::MethodNotAllowed),
        ("PUT", &large, Code::HeadTooLarge),
    ] {
        let answer = exchange(gateway.proxy, raw(method, b"/x", fields, ""));
        let refusal = read(&answer).unwrap_or_else(|| panic!("{answer:?}"));
        assert_eq!((refusal.code, refusal.retry_after()), (code, None));
    }
    let head = "PUT /x HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 9\r\n\r\n";
    let slow = read(&exchange(gateway.proxy, head)).expect("the body never comes");
    assert_eq!(slow.code, Code::RequestTimeout);
    assert_eq!(slow.retry_after(), Some(Duration::from_secs(1)));
    let passed = exchange(gateway.proxy, raw("GET", b"/x", "", ""));
    assert!(read(&passed).is_none(), "the API's answer is none");
}

fn read(answer: &Answer) -> Option<Refusal> {
    let fields = answer.headers.iter().filter_map(|(name, value)| {
        Some((name.parse::<http::HeaderName>().ok()?, value.parse::<http::HeaderValue>().ok()?))
    });
    let status = http::StatusCode::from_u16(answer.status).unwrap();
    Refusal::read(status, &fields.collect(), &answer.body)
}

#[test]
fn a_token_that_is_not_the_holders_ends_the_work() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    block_on(async {
        let leases = leases_of(&gateway);
        let http = reqwest::Client::new();
        let held = hold(&leases, "/x", "a").await;
        // A lease of another resource: this one's token was never its holder's.
        let (code, stop, _) = refused(&held.writes(&http), gateway.proxy, "/y").await;
        assert_eq!((code, stop), (Code::FencingTokenNotHeld, true));
    });
}

#[test]
fn nothing_is_sent_once_the_lease_is_lost_and_that_is_before_its_time_is_over() {
    let api = Downstream::start();
    let mut gateway = Gateway::guard(api.address);
    block_on(async {
        let leases = leases_of(&gateway);
        let clock = Clock::new();
        let began = clock.now();
        let terms = Terms {
            margin: Duration::from_millis(500),
            ..terms("/x", "a", Duration::from_secs(2))
        };
        let held = HeldLease::acquire(&leases, clock, &terms).await.unwrap();
        let (over, http) = (held.over(), reqwest::Client::new());
        gateway.kill();
        let lost = held.lost().await;
        assert!(matches!(lost, Lost::Unconfirmed { .. }), "{lost}");
        assert!(clock.now() < held.view().deadline(), "before the lease's time is over");
        assert!(clock.now().since(began) >= Duration::from_millis(1500), "but not long before");
        over.cancelled().await;
        gateway.start();
        let error = put(&held.writes(&http), gateway.proxy, "/x").await.unwrap_err();
        assert!(matches!(error, WriteError::LeaseLost) && error.ends_the_work());
        assert!(api.seen().is_empty());
    });
}

#[test]
fn a_dropped_lease_is_released_and_an_abandoned_one_is_not() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    block_on(async {
        let leases = leases_of(&gateway);
        let held = hold(&leases, "/x", "a").await;
        let over = held.over();
        drop(held);
        assert!(over.is_cancelled());
        while leases.show(&"/x".parse().unwrap()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let held = hold(&leases, "/y", "a").await;
        held.abandon();
        let terms = terms("/y", "b", LONG);
        let refused = HeldLease::acquire(&leases, Clock::new(), &terms).await;
        assert!(matches!(refused, Err(LeaseError::Held { .. })), "{refused:?}");
    });
}

/// What each source of leases has to do alike.
async fn take_over_and_be_told(leases: &Leases) {
    let held = hold(leases, "r", "a").await;
    let wait = Terms { wait: LONG, ..terms("r", "b", LONG) };
    let refused = HeldLease::acquire(leases, Clock::new(), &terms("r", "b", LONG)).await;
    let Err(LeaseError::Held { holder }) = refused else { panic!("{refused:?}") };
    assert_eq!((holder.owner.as_str(), holder.token), ("a", held.token()));
    let (next, released) = tokio::join!(HeldLease::acquire(leases, Clock::new(), &wait), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let first = held.token();
        held.release().await.unwrap();
        first
    });
    let next = next.unwrap();
    assert!(next.token() > released);
    assert_eq!(leases.list(None, 10).await.unwrap().leases.len(), 1);
    // Whoever acquires under the same name ends the older lease; that one is told by its renewal.
    let short = terms("r", "b", Duration::from_secs(3));
    let old = HeldLease::acquire(leases, Clock::new(), &short).await.unwrap();
    let new = hold(leases, "r", "b").await;
    let lost = old.lost().await;
    assert!(matches!(lost, Lost::Told { .. }), "{lost}");
    assert!(new.view().is_live());
    new.release().await.unwrap();
    assert!(matches!(leases.show(&"r".parse().unwrap()).await, Err(LeaseError::NotFound { .. })));
}

#[test]
fn leases_come_from_the_lease_api() {
    let api = Downstream::start();
    let gateway = Gateway::guard(api.address);
    block_on(async { take_over_and_be_told(&leases_of(&gateway)).await });
}

#[test]
fn leases_come_from_etcd_itself() {
    let etcd = servers::etcd::Etcd::single();
    let settings = EtcdSettings {
        endpoints: etcd.endpoints(),
        prefix: "/fencegate/leases".to_owned(),
        layout: Layout::Mutex,
        user: None,
        tls: None,
    };
    block_on(async { take_over_and_be_told(&Leases::etcd(&settings)).await });
}

#[test]
fn leases_come_from_postgresql_itself_and_a_gateway_confirms_their_tokens() {
    let mut server = servers::postgres::Postgres::start();
    let api = Downstream::start();
    let gateway = Gateway::with_config(&format!(
        "[coordinator]\nurl = \"{}\"\n[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\n",
        server.url(),
        api.address
    ));
    block_on(async {
        let access: fencegate::coordinator::PostgresAccess = server.url().parse().unwrap();
        let settings = PostgresSettings { listen: Some(access.clone()), access };
        let leases = Leases::postgres(&settings).await.unwrap();
        take_over_and_be_told(&leases).await;
        let (held, http) = (hold(&leases, "/x", "a").await, reqwest::Client::new());
        put(&held.writes(&http), gateway.proxy, "/x").await.unwrap();
        assert_eq!(gateway.holder("/x").as_deref(), Some("a"), "the lease API has the same leases");
        // What is known goes on without the coordinator; a new token is not let in.
        let next = hold(&leases, "/y", "a").await;
        server.kill();
        put(&held.writes(&http), gateway.proxy, "/x").await.unwrap();
        let (code, stop, outcome) = refused(&next.writes(&http), gateway.proxy, "/y").await;
        let expected = (Code::CoordinatorUnavailable, false, ProblemOutcome::NotForwarded);
        assert_eq!((code, stop, outcome), expected);
    });
    wait_until("the write is at the API", || api.tokens("/x").len() == 2);
}
