//! Reads `[limits]`.

use std::time::Duration;

use super::reader::Reader;
use super::{ApiLimits, Limits, values};

const KIB: u64 = 1024;
/// Fewer than the acquisitions that a coordinator has under way in all, which bounds those that do not
/// wait as well.
const MOST_LEASE_WAITERS: usize = 8_000;

pub(super) fn limits(mut from: Reader<'_>) -> Option<Limits> {
    // The HTTP library takes no smaller head buffer than 8 KiB.
    let head_bytes = from.read("head_size", values::size(8 * KIB, 16 * 1024 * KIB));
    let head_fields = from.read("head_fields", values::number(10_000));
    let head_timeout = from.read("head_timeout", values::positive_duration);
    let body_timeout = from.read("body_timeout", values::positive_duration);
    let idle_timeout = from.read("idle_timeout", values::positive_duration);
    let keep_alive_requests = from.read("keep_alive_requests", values::number(1_000_000_000));
    let keep_alive_age = from.read("keep_alive_age", values::positive_duration);
    let streams = from.read("streams", values::number(10_000));
    let h2_resets = from.read("h2_resets", values::number(1_000_000));
    let handshake_timeout = from.read("handshake_timeout", values::positive_duration);
    let connections = from.read("connections", values::number(1_000_000));
    let client_connections = from.read("client_connections", values::number(1_000_000));
    let concurrency = from.read_optional("client_concurrency", values::number(1_000_000));
    let client_rate = from.read_optional("client_rate", values::rate);
    let waiters = from.read("waiters", values::number(1_000_000));
    let cells = from.read("cells", values::number(100_000_000));
    let cell_idle = from.read("cell_idle", values::positive_duration);
    let api = api_limits(&mut from, client_connections, handshake_timeout);
    Some(Limits {
        head_bytes: usize::try_from(head_bytes?).ok()?,
        head_fields: head_fields?,
        head_timeout: head_timeout?,
        body_timeout: body_timeout?,
        idle_timeout: idle_timeout?,
        keep_alive_requests: keep_alive_requests?,
        keep_alive_age: keep_alive_age?,
        streams: u32::try_from(streams?).ok()?,
        h2_resets: h2_resets?,
        handshake_timeout: handshake_timeout?,
        connections: connections?,
        client_connections: client_connections?,
        client_concurrency: concurrency?,
        client_rate: client_rate?,
        waiters: waiters?,
        cells: cells?,
        cell_idle: cell_idle?,
        api: api?,
    })
}

fn api_limits(
    from: &mut Reader<'_>,
    client_connections: Option<usize>,
    handshake_timeout: Option<Duration>,
) -> Option<ApiLimits> {
    let connections = from.read("api_connections", values::number(100_000));
    let body = from.read("api_body_size", values::size(1024, 1024 * KIB));
    let timeout = from.read("api_timeout", values::positive_duration);
    let waiters = from.read("lease_waiters", values::number(MOST_LEASE_WAITERS));
    let of_resource = from.read("resource_lease_waiters", values::number(MOST_LEASE_WAITERS));
    let limits = ApiLimits {
        connections: connections?,
        client_connections: client_connections?,
        body_bytes: usize::try_from(body?).ok()?,
        handshake_timeout: handshake_timeout?,
        timeout: timeout?,
        lease_waiters: waiters?,
        resource_lease_waiters: of_resource?,
    };
    // Each that waits keeps a connection, and a holder that finds none cannot renew.
    let most = limits.connections * 3 / 4;
    if limits.lease_waiters > most {
        let name = if from.is_set("lease_waiters") { "lease_waiters" } else { "api_connections" };
        let place = from.place(name);
        let message = format!(
            "limits.lease_waiters: {} would wait, and at most three quarters of \
             limits.api_connections may, here {most}: holders have to be able to renew",
            limits.lease_waiters
        );
        from.mistakes.push(&place, message);
        return None;
    }
    Some(limits)
}
