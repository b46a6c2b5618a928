//! Connections that raises keep between calls.

use super::super::at_hand::InUse;
use super::*;

/// The address of a database, which may lead to another server, or to a host that has vanished.
struct Relay {
    port: u16,
    leads_to: Arc<Mutex<u16>>,
    /// Connections that there are say nothing any more, either way.
    silence: Arc<Notify>,
}

impl Relay {
    async fn before(server: u16) -> Relay {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (leads_to, silence) = (Arc::new(Mutex::new(server)), Arc::new(Notify::new()));
        let relay = Relay { port, leads_to: Arc::clone(&leads_to), silence: Arc::clone(&silence) };
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let (port, silence) = (*leads_to.lock().unwrap(), Arc::clone(&silence));
                tokio::spawn(async move {
                    let address = ("127.0.0.1", port);
                    let mut to = tokio::net::TcpStream::connect(address).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        () = silence.notified() => std::future::pending().await,
                    }
                });
            }
        });
        relay
    }

    fn lead_to(&self, server: u16) {
        *self.leads_to.lock().unwrap() = server;
    }
}

async fn pid(one: &mut InUse) -> i32 {
    let asked = sqlx::query_scalar("SELECT pg_backend_pid()");
    asked.fetch_one(&mut *one.connection).await.unwrap()
}

async fn with(server: &Server_, connections: u32) -> Postgres {
    open_with(&PostgresSettings { connections, ..settings(&server.url()) }).await.unwrap()
}

#[tokio::test]
async fn the_one_that_was_used_last_is_used_next() {
    let server = Server_::start();
    let store = open(&server.url()).await.unwrap();
    let at_hand = &store.0.at_hand;
    let (mut one, mut two) = (at_hand.take().await.unwrap(), at_hand.take().await.unwrap());
    let (first, second) = (pid(&mut one).await, pid(&mut two).await);
    at_hand.keep(one);
    at_hand.keep(two);
    for _ in 0..3 {
        let mut used = at_hand.take().await.unwrap();
        let mut others = at_hand.one_of_the_pool().await.unwrap();
        assert_eq!(pid(&mut used).await, second);
        assert!(![first, second].contains(&pid(&mut others).await), "that is the pool's");
        at_hand.keep(used);
    }
}

#[tokio::test]
async fn one_from_before_something_took_too_long_is_closed() {
    let server = Server_::start();
    let store = open(&server.url()).await.unwrap();
    let at_hand = &store.0.at_hand;
    let mut before = at_hand.take().await.unwrap();
    let old = pid(&mut before).await;
    at_hand.keep(before);
    store.0.trust.lose();
    assert_ne!(pid(&mut at_hand.take().await.unwrap()).await, old);
    let is_there = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {old}");
    until("it is closed", async || server.sql(&is_there) == "0").await;
}

#[tokio::test]
async fn most_of_the_pool_is_left_to_others() {
    let server = Server_::start();
    for (connections, kept) in [(1, 0), (3, 0), (4, 1), (7, 1), (8, 2), (20, 2)] {
        let store = with(&server, connections).await;
        let at_hand = &store.0.at_hand;
        let mut in_use = Vec::new();
        for _ in 0..connections.min(4) {
            in_use.push(at_hand.take().await.unwrap());
        }
        for one in in_use {
            at_hand.keep(one);
        }
        assert_eq!(at_hand.resting(), kept, "of {connections}");
    }
}

#[tokio::test]
async fn the_end_waits_for_those_in_use_alone() {
    let server = Server_::start();
    let store = open(&server.url()).await.unwrap();
    let at_hand = &store.0.at_hand;
    let (resting, in_use) = (at_hand.take().await.unwrap(), at_hand.take().await.unwrap());
    at_hand.keep(resting);
    let mut end = std::pin::pin!(at_hand.close());
    assert!(futures_util::poll!(&mut end).is_pending());
    at_hand.keep(in_use);
    tokio::time::timeout(SOON, end).await.expect("nothing is out any more");
    assert_eq!(at_hand.resting(), 0);
}

#[tokio::test]
async fn raises_share_a_connection_that_nothing_else_uses_and_outlive_it() {
    let run = Run::first().await;
    let one = run.store();
    let raise = async |token| {
        let raised = one.fences.raise(one.instance, first_raise("r", token)).await.unwrap();
        assert_eq!(raised.mark.rank.token, Token::from_i64(token).unwrap());
    };
    let last_raised = "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity
        WHERE query LIKE '%fencegate_raise(%' AND pid <> pg_backend_pid()";
    raise(1).await;
    let raiser = run.server.sql(last_raised);
    for number in 2..6 {
        let [list, other] = [one.fences.list(None, 10), one.fences.list(None, 10)];
        let (list, other) = futures_util::future::join(list, other).await;
        assert_eq!((list.unwrap().len(), other.unwrap().len()), (1, 1));
        raise(number).await;
        assert_eq!(run.server.sql(last_raised), raiser);
    }
    let others = format!(
        "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity
         WHERE application_name = 'fencegate' AND pid <> {raiser}"
    );
    let healthy = run.server.sql(&others);
    assert_eq!(run.server.sql(&format!("SELECT pg_terminate_backend({raiser})")), "t");
    raise(6).await;
    assert_eq!(run.server.sql(&others), healthy, "one that broke says nothing about others");
}

#[tokio::test]
async fn one_whose_call_failed_goes_back_to_the_pool() {
    let run = Run::first().await;
    let raise = json!({"instance": run.instance.as_i64(), "raises": "none"});
    let failed =
        run.store.call::<_, serde_json::Value>(Operation::Raise, "fencegate_raise", &raise);
    assert!(failed.await.is_err());
    assert_eq!(run.store.0.at_hand.resting(), 0);
}

/// As when the address follows a fail-over late.
#[tokio::test]
async fn a_raise_that_is_led_to_a_standby_is_made_at_the_primary() {
    let server = Server_::start();
    let standby = server.standby("standby");
    let relay = Relay::before(server.port()).await;
    let store = open(&crate::servers::postgres::url_at(relay.port)).await.unwrap();
    let fences = PostgresFences::new(&store, &TaskTracker::new());
    let instance = join(&store).await;
    relay.lead_to(standby.port());
    store.0.trust.lose();
    let back = async {
        until("it is at the standby", async || {
            let is_there =
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%fencegate_raise(%'
                AND pid <> pg_backend_pid()";
            standby.sql(is_there) != "0"
        })
        .await;
        relay.lead_to(server.port());
        store.0.trust.lose();
    };
    let (raised, ()) =
        futures_util::future::join(fences.raise(instance, first_raise("r", 5)), back).await;
    assert_eq!(raised.unwrap().mark.rank.token, Token::from_i64(5).unwrap());
}

#[tokio::test]
async fn a_connection_of_which_the_other_side_vanished_keeps_no_place_in_the_pool() {
    let server = Server_::start();
    let relay = Relay::before(server.port()).await;
    let url = crate::servers::postgres::url_at(relay.port);
    let one = PostgresSettings { connections: 1, ..settings(&url) };
    let store = open_with(&one).await.unwrap();
    let fences = PostgresFences::new(&store, &TaskTracker::new());
    let used = store.0.pool.acquire().await.unwrap();
    relay.silence.notify_waiters();
    drop(used);
    let shown = fences.show(Resource::new("r").unwrap()).await;
    assert!(shown.unwrap().is_none());
}
