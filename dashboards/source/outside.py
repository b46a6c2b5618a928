"""What the gateways see of store and coordinator, of each other, and what Prometheus sees of them."""

from panels import LEASE_ENDS, RED, by_name, colour, query, state_timeline, table, timeseries, words
from promql import instances, is_gateway, lease_left, quantile, rate, since_last_seen

THIRD = {"width": 8, "height": 8}
HALF = {"width": 12, "height": 7}
STORE = "fencegate_store_duration_seconds"


def panels():
    return [store_time(), store_calls(), store_errors(), coordinator_time(), coordinator_errors(), connections()]


def store_time():
    return timeseries(
        "Store: time by operation",
        "95 of 100 took no longer, from asking until the transaction was confirmed or had failed. raise: new marks and "
        "grants, the one that new holders wait for. instance: the gateways' own leases.", "s",
        [query(quantile(0.95, STORE, "operation", instances), "{{operation}}")],
        alerts=["FencegateStoreUnavailable"], **THIRD)


def store_calls():
    return timeseries(
        "Store: calls by operation", "What is asked at the same time shares a transaction.", "ops",
        [query(rate(instances(STORE + "_count"), "operation"), "{{operation}}")], stack=True,
        alerts=["FencegateStoreUnavailable"], **THIRD)


def store_errors():
    return timeseries(
        "Store: calls not confirmed", "By operation; those that do not occur are left out.", "ops",
        [query(rate(instances("fencegate_store_errors_total"), "operation") + " > 0", "{{operation}}")], stack=True,
        alerts=["FencegateStoreUnavailable"], **THIRD)


def coordinator_time():
    metric = "fencegate_coordinator_duration_seconds"
    return timeseries(
        "Coordinator: time to name a holder",
        "Asked once per new token. With etcd it is a read through a quorum, of all that ask at the same time.", "s",
        [query(quantile(q, metric, select=instances), name)
         for name, q in (("half", 0.5), ("95 of 100", 0.95), ("99 of 100", 0.99))],
        alerts=["FencegateCoordinatorUnavailable"], **THIRD)


def coordinator_errors():
    return timeseries(
        "Coordinator: calls without an answer",
        "By operation; and how often an endpoint of etcd failed a request, so that the next one was asked.", "ops",
        [query(rate(instances("fencegate_coordinator_errors_total"), "operation") + " > 0", "{{operation}}"),
         query(rate(instances("fencegate_etcd_failovers_total"), "endpoint") + " > 0", "{{endpoint}} failed")],
        alerts=["FencegateCoordinatorUnavailable"], **THIRD)


def connections():
    wait = quantile(0.99, "fencegate_postgres_connection_wait_seconds", "pool", instances)
    return timeseries(
        "PostgreSQL: connections",
        "Connections by pool and state, those made anew per second (without load: reconnects), and the wait for a free "
        "one, of which 99 of 100 took no longer. Nothing with SQLite.", "short",
        [query(f"sum by (pool, state) ({instances('fencegate_postgres_connections')})", "{{pool}} {{state}}"),
         query(rate(instances("fencegate_postgres_connects_total"), "pool"), "{{pool}} made per second"),
         query(wait, "{{pool}} wait")],
        overrides=[by_name("store wait", ("unit", "s")), by_name("coordinator wait", ("unit", "s")),
                   by_name("store made per second", ("unit", "cps")),
                   by_name("coordinator made per second", ("unit", "cps"))],
        alerts=["FencegateStoreUnavailable"], **THIRD)


def instance_panels():
    return [each(), up(), leases_left(), events(), scrapes()]


def each():
    columns = {
        "Ready": "fencegate_ready", "Epoch": "fencegate_coordinator_epoch", "Connections": "fencegate_connections",
        "In flight": "fencegate_in_flight_writes", "Unsettled": "fencegate_unsettled_writes",
        "Resources": "fencegate_cells", "Grants": "fencegate_grants", "Memory": "process_resident_memory_bytes",
    }
    age = f"time() - max by (job, instance) ({instances('process_start_time_seconds')})"
    version = f"max by (job, instance, version) ({instances('fencegate_build_info')})"
    queries = [(name, f"max by (job, instance) ({instances(metric)})") for name, metric in columns.items()]
    return table(
        "Each instance", "What each instance says of itself at the end of the time shown.", "short",
        [("job", "Job"), ("instance", "Instance"), ("version", "Version")],
        [("Build", version), ("Running for", age), *queries], sort="In flight",
        hidden=["Build"],
        overrides=[by_name("Running for", ("unit", "dtdurations")), by_name("Memory", ("unit", "bytes")),
                   by_name("Ready", ("mappings", words({0: ("no", RED), 1: ("yes", "green")})))],
        alerts=["FencegateDown", "FencegateNotReady"], width=24, height=6)


def up():
    return state_timeline(
        "Up", "Whether Prometheus could scrape each instance.", "none",
        [query(is_gateway(instances("up")), "{{instance}}")], words({0: ("down", RED), 1: ("up", "green")}),
        alerts=["FencegateDown", "FencegateAbsent"], **HALF)


def leases_left():
    return timeseries(
        "Instance leases: what is left",
        "Each instance has a lease of its own in the store and renews it every third of its time; with none left it admits "
        "nothing. An instance that has SQLite to itself has no line.", "percentunit",
        [query(lease_left(), "{{instance}}")], full=True, calcs=["min", "lastNotNull"], thresholds=LEASE_ENDS,
        alerts=["FencegateInstanceLeaseEnding"], **HALF)


def events():
    counters = {
        "started over": "fencegate_instance_starts_over_total",
        "renewals failed": "fencegate_instance_renewals_failed_total",
        "others taken for dead": "fencegate_instances_fenced_total",
        "grants revoked for others": "fencegate_grants_revoked_total",
    }
    return timeseries(
        "Instances among each other",
        "Renewals of instance leases that the store did not confirm; instances whose lease was over, so that they cut all "
        "that was in flight and began anew; instances that others took for dead; grants that went because a newer token "
        "writes through another instance (ordinary after a handover). How often since the point before.", "short",
        [query(since_last_seen(instances(metric)), name) for name, metric in counters.items()],
        overrides=[colour("started over", RED)],
        alerts=["FencegateInstanceStartedOver", "FencegateInstanceLeaseEnding"], **HALF)


def scrapes():
    return timeseries(
        "Scrapes", "What Prometheus takes to scrape an instance: the slowest, and the median.", "s",
        [query(f"max({is_gateway(instances('scrape_duration_seconds'))})", "slowest"),
         query(f"quantile(0.5, {is_gateway(instances('scrape_duration_seconds'))})", "median")],
        alerts=["FencegateDown", "FencegateNotReady"], **HALF)
