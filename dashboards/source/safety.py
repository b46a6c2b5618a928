"""Is it safe: what was refused and why, who is late, what is in doubt, who goes around."""

from panels import ORANGE, RED, by_name, colour, heatmap, query, state_timeline, table, timeseries, words
from promql import (FAILS_CLOSED, INVALID_TOKEN, buckets, increase, instances, quantile, rate, rejections, routes,
                    total)

THIRD = {"width": 8, "height": 8}
STALE_AGE = "fencegate_stale_write_age_seconds"


def panels():
    return [
        decisions(), answers(), stale_by_route(),
        stale_ages(), lateness(), late_routes(),
        in_doubt(), unsettled(), failing_closed(),
        invalid_tokens(), fenced_routes(), leases_and_raises(),
        history(), epochs(),
    ]


def decisions():
    return timeseries(
        "Fenced writes, by decision",
        "Admitted: the token is the holder's and no newer one was accepted. Refused: anything else, nothing of it was "
        "forwarded; under mode observe it was, and this is what would have been refused.", "reqps",
        [query(rate(routes("fencegate_admission_decisions_total"), "decision"), "{{decision}}")],
        stack=True, overrides=[colour("admitted", "green"), colour("refused", ORANGE)],
        alerts=["FencegateWritesRefused", "FencegateFencedRouteSilent"], **THIRD)


def answers():
    return timeseries(
        "Answers of the gateway itself, by code",
        "What the gateway answered instead of the API. docs/http.md says what each code means and what a client should "
        "do. Codes that do not occur are left out.", "reqps",
        [query(rate(rejections(".+"), "code") + " > 0", "{{code}}")], stack=True,
        alerts=["FencegateWritesRefused", "FencegateUpstreamFailing"], **THIRD)


def stale_by_route():
    return timeseries(
        "Stale writes, by route",
        "Writes with a token below the mark: their worker went on after its lease was lost and a newer holder had "
        "written. A rise means workers that pause, or leases that are too short.", "reqps",
        [query(rate(rejections("stale_fencing_token"), "route"), "{{route}}")],
        alerts=["FencegateStaleWritesRising"], **THIRD)


def stale_ages():
    return heatmap(
        "How late stale writes are",
        "For how long the newer token had been accepted when a stale write came. Seconds: the pause of a worker. "
        "Hours: a process that nobody ended.", "s", buckets(STALE_AGE),
        alerts=["FencegateStaleWritesRising"], **THIRD)


def lateness():
    return timeseries(
        "How late, by route", "Of 100 stale writes of a route, 95 came no later than this after the newer token.", "s",
        [query(quantile(0.95, STALE_AGE, "route"), "{{route}}")],
        alerts=["FencegateStaleWritesRising"], **THIRD)


def late_routes():
    count = increase(rejections("stale_fencing_token"), "route")
    ages = increase(routes(STALE_AGE + "_count"), "route")
    mean = f"{increase(routes(STALE_AGE + '_sum'), 'route')} / ({ages} > 0)"
    writes = increase(routes("fencegate_admission_decisions_total"), "route")
    return table(
        "Who is late, by how much",
        "Stale writes of each route in the time shown, how late they were on average, and their share of all fenced "
        "writes. Which resource and owner: the log's lines with code stale_fencing_token.", "short",
        [("route", "Route")],
        [("Stale", f"{count} > 0"), ("Mean age", mean), ("Share", f"({count} > 0) / {writes}")],
        sort="Stale", alerts=["FencegateStaleWritesRising"],
        overrides=[by_name("Mean age", ("unit", "s")), by_name("Share", ("unit", "percentunit")),
                   by_name("Stale", ("decimals", 0))], **THIRD)


def in_doubt():
    return timeseries(
        "Writes that came into doubt, by reason",
        "Sent at least in part, outcome unknown. Each deserves a look at the API: `fencegate fence in-doubt` lists "
        "them. cut: the gateway ended it after the drain limit, for a newer holder.", "reqps",
        [query(rate(routes("fencegate_in_doubt_writes_total"), "reason"), "{{reason}}")], stack=True,
        alerts=["FencegateWritesInDoubt"], **THIRD)


def unsettled():
    return timeseries(
        "Unsettled and draining writes",
        "Unsettled: in doubt, and their settle time is not over. Draining: newer writes that wait until older ones of "
        "their resource are over.", "short",
        [query(total(instances("fencegate_unsettled_writes")), "unsettled"),
         query(total(instances("fencegate_draining_writes")), "draining")],
        alerts=["FencegateWritesInDoubt", "FencegateDrainStuck"], **THIRD)


def failing_closed():
    return timeseries(
        "New tokens refused because nobody can answer for them",
        "fence_store_unavailable: not recorded. coordinator_unavailable: not confirmed. coordinator_changed: an operator "
        "has to adopt the coordinator's new history. Writes under grants that stand go on.", "reqps",
        [query(rate(rejections(FAILS_CLOSED), "code"), "{{code}}")], stack=True,
        alerts=["FencegateStoreUnavailable", "FencegateCoordinatorUnavailable", "FencegateCoordinatorChanged"], **THIRD)


def invalid_tokens():
    return timeseries(
        "Writes without a token of their own",
        "No token, none that can be read, or one that is not the holder's: clients that were not taught, mistyped "
        "configuration, or somebody who guesses.", "reqps",
        [query(rate(rejections(INVALID_TOKEN), "route, code") + " > 0", "{{route}}: {{code}}")],
        alerts=["FencegateWritesRefused"], **THIRD)


def fenced_routes():
    info = f"max by (route, upstream, mode, tokens) ({routes('fencegate_route_info')})"
    # Requests that match no route are none of them.
    writes = rate(routes("fencegate_admission_decisions_total", 'route!="none"'), "route")
    return table(
        "Routes and their fenced writes",
        "A fenced route without fenced writes, while its API is written to, means that somebody goes around the "
        "gateway. mode observe and tokens ordered promise less: docs/guarantees.md.", "reqps",
        [("route", "Route"), ("upstream", "Upstream"), ("mode", "Mode"), ("tokens", "Tokens")],
        [("Configured", info), ("Fenced writes", writes)],
        hidden=["Configured"], alerts=["FencegateFencedRouteSilent"], **THIRD)


def leases_and_raises():
    return timeseries(
        "Leases acquired, marks raised",
        "Each holder that writes raises the mark of its resource once. Leases without raises: workers that do not write, "
        "or do not write through the gateway.", "cps",
        [query(rate(instances("fencegate_leases_acquired_total")), "leases acquired"),
         query(rate(instances("fencegate_raises_total")), "marks raised")],
        alerts=["FencegateLeasesWithoutWrites"], **THIRD)


def history():
    return state_timeline(
        "History of the coordinator",
        "Changed: etcd was restored, wiped or replaced. No new token is admitted until an operator adopts the new "
        "history.", "none",
        [query(f"max by (job) ({instances('fencegate_coordinator_changed')})", "{{job}}")],
        words({0: ("as known", "green"), 1: ("changed", RED)}),
        alerts=["FencegateCoordinatorChanged"], width=12, height=6)


def epochs():
    return timeseries(
        "Epoch of the coordinator",
        "Which history of the coordinator it is, counted from 1; one more after each adoption. Instances that stay "
        "behind have not heard of it yet.", "none",
        [query(f"max by (job) ({instances('fencegate_coordinator_epoch')})", "{{job}}, newest"),
         query(f"min by (job) ({instances('fencegate_coordinator_epoch')})", "{{job}}, oldest")],
        step=True, calcs=["lastNotNull"], alerts=["FencegateCoordinatorChanged"], width=12, height=6)
