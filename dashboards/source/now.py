"""One look: what is wrong at this moment."""

from panels import LEASE_ENDS, RED, YELLOW, at_end, query, stat, words
from promql import FAILS_CLOSED, increase, instances, is_gateway, lease_left, rate, rejections, routes

SIZE = {"width": 3, "height": 4}


def panels():
    """A row of large numbers."""
    return [ready(), down(), history(), stale(), unsettled(), failing_closed(), drain(), instance_lease()]


def ready():
    return stat(
        "Ready", "Instances that answer `/readyz` with 200.", "short",
        [query(f"sum({instances('fencegate_ready')})")],
        alerts=["FencegateAbsent", "FencegateNotReady"], nothing="none", **SIZE)


def down():
    is_down = is_gateway(f"({instances('up')} == 0)")
    return stat(
        "Down", "Instances that Prometheus cannot scrape, and could in the time shown.", "short",
        [query(f"count({is_down}) or vector(0)")],
        thresholds=[(1, RED)], alerts=["FencegateDown"], **SIZE)


def history():
    return stat(
        "Coordinator's history",
        "Whether the coordinator goes on with the history that the store knows. If it changed (restored, wiped, "
        "replaced), no new token is admitted until an operator adopts the new one.", "none",
        [query(f"max({instances('fencegate_coordinator_changed')})")],
        mappings=words({0: ("as known", "green"), 1: ("CHANGED", RED)}), thresholds=[(1, RED)],
        alerts=["FencegateCoordinatorChanged"], **SIZE)


def stale():
    return stat(
        "Stale writes refused",
        "In the time shown: writes whose worker went on after a newer holder had written. None reached the API.",
        "short", [at_end(increase(rejections("stale_fencing_token")))],
        thresholds=[(1, YELLOW)], decimals=0, alerts=["FencegateStaleWritesRising"], **SIZE)


def unsettled():
    return stat(
        "In doubt, unsettled",
        "Writes whose outcome is unknown and that can still take effect. Newer tokens of their resources wait for them.",
        "short", [query(f"sum({instances('fencegate_unsettled_writes')})")],
        thresholds=[(1, YELLOW)], alerts=["FencegateWritesInDoubt"], **SIZE)


def failing_closed():
    return stat(
        "New tokens refused",
        "Per second, because the store cannot record them or the coordinator cannot confirm them. Holders that have "
        "written before go on.", "reqps", [query(rate(rejections(FAILS_CLOSED)))],
        thresholds=[(0.001, RED)], decimals=1,
        alerts=["FencegateStoreUnavailable", "FencegateCoordinatorUnavailable", "FencegateCoordinatorChanged"], **SIZE)


def drain():
    limit = f"{routes('fencegate_route_drain_limit_seconds')} + {routes('fencegate_route_settle_seconds')}"
    age = f"max by (job, instance) ({instances('fencegate_drain_age_seconds')})"
    return stat(
        "Longest drain",
        "How long the longest wait for older writes has lasted, as a share of what it may take at most: the route's "
        "drain limit and the settle time.", "percentunit",
        [query(f"max({age} / on (job, instance) max by (job, instance) ({limit}))")],
        thresholds=[(0.5, YELLOW), (1, RED)], decimals=0, alerts=["FencegateDrainStuck"], **SIZE)


def instance_lease():
    return stat(
        "Instance lease left",
        "Of the instance that is closest to the end of its own lease in the store, at which it admits nothing; two "
        "thirds and more are ordinary. An instance that has SQLite to itself needs none.", "percentunit",
        [query(f"min({lease_left()})")], thresholds=LEASE_ENDS, nothing="not needed", decimals=0,
        alerts=["FencegateInstanceLeaseEnding"], **SIZE)
