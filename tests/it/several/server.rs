//! What holds on, fails closed and comes back when the server is killed, promoted, restored, full or crowded.

use super::*;

#[test]
fn while_the_server_is_dead_holders_go_on_until_their_gateways_lease_is_over() {
    let (api, mut server) = (Downstream::start(), Postgres::start());
    let one = start(&api, server.port());
    assert_eq!(one.put("/x", 5, "x").status, 200);

    server.kill();

    assert_eq!(one.put("/x", 5, "x").status, 200, "from memory");
    wait_until("its lease is over", || one.admin("/readyz").status == 503);
    let refused = one.put("/x", 5, "x");
    assert_problem(&refused, 503, "fence_store_unavailable", "not_forwarded");
    server.start_again();
    wait_until("it starts over", || one.admin("/readyz").status == 200);
    assert_eq!(one.put("/x", 5, "x").status, 200);
    assert_eq!(one.put("/x", 4, "x").code(), "stale_fencing_token");
    assert_eq!(one.put("/x", 6, "x").status, 200);
}

#[test]
fn a_restart_of_the_server_within_the_lease_is_a_short_wait() {
    let (api, mut server) = (Downstream::start(), Postgres::start());
    let one = start(&api, server.port());
    assert_eq!(one.put("/x", 5, "x").status, 200);
    server.stop();
    let newer = put_later(&one, "/x", 6);
    server.start_again();
    assert_eq!(newer.join().expect("an answer").status, 200);
}

#[test]
fn a_promoted_standby_goes_on_where_the_primary_was() {
    let (api, mut primary) = (Downstream::start(), Postgres::start());
    let standby = primary.standby("standby");
    primary.wait_for(&["standby"]);
    let wire = Wire::to(primary.port());
    let [one, two] = [start(&api, wire.port), start(&api, wire.port)];
    assert_eq!(one.put("/x", 5, "x").status, 200);
    assert_eq!(two.put("/y", 5, "x").status, 200);

    primary.kill();
    standby.promote();
    wire.lead_to(standby.port());

    for gateway in [&one, &two] {
        wait_until("it is ready", || gateway.admin("/readyz").status == 200);
    }
    let mut accepted = Answer { status: 0, headers: Vec::new(), body: Vec::new() };
    wait_until("the new server is known", || {
        accepted = two.put("/x", 6, "x");
        accepted.status == 200
    });
    assert_eq!(one.put("/x", 5, "x").code(), "stale_fencing_token");
    assert_eq!(one.put("/y", 6, "x").status, 200);
    assert_eq!(standby.sql("SELECT max(token) FROM fences"), "6");
}

#[test]
fn marks_that_a_restored_backup_lacks_are_told_by_those_who_remember_them() {
    let (api, mut server) = (Downstream::start(), Postgres::start());
    let one = start(&api, server.port());
    assert_eq!(one.put("/x", 5, "x").status, 200);
    let backup = server.backup();
    assert_eq!(one.put("/x", 9, "x").status, 200);
    assert_eq!(one.put("/y", 7, "x").status, 200);

    server.restore(&backup);

    wait_until("the marks are back", || {
        server.sql("SELECT string_agg(token::text, ' ' ORDER BY resource) FROM fences") == "9 7"
    });
    let two = start(&api, server.port());
    assert_eq!(two.put("/x", 8, "x").code(), "stale_fencing_token");
    assert_eq!(two.put("/y", 8, "x").status, 200);
}

#[test]
fn a_full_disk_refuses_new_tokens_and_nothing_else_until_there_is_room() {
    use crate::support::small_disk::SmallDisk;
    let api = Downstream::start();
    let disk = SmallDisk::mount("150m");
    let server = Postgres::start_below(disk.path(), "");
    let mut one = Gateway::one_of_several(
        api.address,
        &store(server.port()).replace("\"2s\"", "\"60s\""),
        &server.url(),
    );
    one.start();
    assert_eq!(one.put("/x", 5, "x").status, 200);

    disk.fill();
    let (mut count, mut path) = (0, String::new());
    let mut refused = None;
    // A fence more each time: rows that are there are rewritten in their place, until the log itself has no room.
    wait_until("the tables cannot grow", || {
        count += 1;
        path = format!("/y{count}");
        let answer = one.put(&path, 6, "x");
        refused = (answer.status != 200).then_some(answer);
        refused.is_some()
    });

    let refused = refused.expect("seen above");
    assert_problem(&refused, 503, "fence_store_unavailable", "not_forwarded");
    assert_eq!(one.put("/x", 5, "x").status, 200, "its grant is on record");
    disk.make_room();
    wait_until("it goes on", || one.put(&path, 6, "x").status == 200);
}

#[test]
fn a_server_without_free_connections_lets_nobody_in_who_needs_it_and_recovers() {
    let (api, server) = (Downstream::start(), Postgres::start());
    let one = start(&api, server.port());
    assert_eq!(one.put("/x", 5, "x").status, 200);
    let crowd: Vec<_> = (0..100)
        .filter_map(|_| {
            let mut connection = std::net::TcpStream::connect(("127.0.0.1", server.port())).ok()?;
            // A start-up message that the server answers and then waits.
            let body = b"\0\x03\0\0user\0fencegate\0database\0postgres\0\0";
            let length = u32::try_from(body.len() + 4).ok()?.to_be_bytes();
            std::io::Write::write_all(&mut connection, &[&length[..], body].concat()).ok()?;
            Some(connection)
        })
        .collect();
    assert_eq!(one.put("/x", 5, "x").status, 200);
    assert_eq!(one.put("/x", 6, "x").status, 200, "its own connections stay");
    drop(crowd);
    wait_until("there is room", || server.sql("SELECT 1") == "1");
    assert_eq!(one.put("/x", 7, "x").status, 200);
}
