"""Is it full: load, and how much of each limit is used."""

from panels import RED, YELLOW, query, timeseries
from promql import fullness, instances, rate, rejections, routes, total

THIRD = {"width": 8, "height": 8}


def panels():
    return [traffic(), under_way(), full(), overloaded(), memory(), cpu(), held(), lost()]


def traffic():
    return timeseries(
        "Requests, by route", "Reads and writes, refused ones included.", "reqps",
        [query(rate(routes("fencegate_requests_total"), "route, class") + " > 0", "{{route}} {{class}}")],
        stack=True, alerts=["FencegateFencedRouteSilent"], **THIRD)


def under_way():
    gauges = {"connections": "fencegate_connections", "in flight": "fencegate_in_flight_writes",
              "waiting for admission": "fencegate_waiting_writes"}
    return timeseries(
        "Under way",
        "Client connections, fenced writes that the API has not answered, and writes that wait for store, coordinator "
        "or older writes.", "short", [query(total(instances(metric)), name) for name, metric in gauges.items()],
        alerts=["FencegateOverloaded"], **THIRD)


def full():
    return timeseries(
        "The fullest instance",
        "What it uses of each limit. At 100 %: connections wait to be accepted; idle resources leave memory and cost a "
        "raise when they come back; files: connections fail.", "percentunit",
        [query(fullness("fencegate_connections", "fencegate_connections_limit"), "connections"),
         query(fullness("fencegate_cells", "fencegate_cells_limit"), "resources in memory"),
         query(fullness("process_open_fds", "process_max_fds"), "files"),
         query(database(), "PostgreSQL connections ({{pool}})")],
        full=True, thresholds=[(0.8, YELLOW), (0.95, RED)], alerts=["FencegateOverloaded"], **THIRD)


def database():
    busy = instances("fencegate_postgres_connections", 'state="busy"')
    limit = instances("fencegate_postgres_connections_limit")
    return f"max by (pool) ({busy} / ignoring (state) {limit})"


def overloaded():
    return timeseries(
        "Load that was shed",
        "Requests refused with code overloaded: too many wait on one resource, a limit is reached, or the gateway is "
        "shutting down.", "reqps",
        [query(rate(rejections("overloaded"), "route"), "{{route}}")], stack=True, alerts=["FencegateOverloaded"], **THIRD)


def memory():
    used = instances("process_resident_memory_bytes")
    return timeseries(
        "Memory", "Resident memory of the process: the largest, and half of the instances use no more than the median.",
        "bytes", [query(f"max({used})", "largest"), query(f"quantile(0.5, {used})", "median")],
        alerts=["FencegateOverloaded"], **THIRD)


def cpu():
    used = f"rate({instances('process_cpu_seconds_total')}[$__rate_interval])"
    return timeseries(
        "CPU", "Cores in use: the busiest instance, the median, and all together.", "short",
        [query(f"max({used})", "busiest"), query(f"quantile(0.5, {used})", "median"), query(f"sum({used})", "all")],
        alerts=["FencegateOverloaded"], **THIRD)


def held():
    return timeseries(
        "Resources in memory and grants",
        "Resources that an instance knows the mark of, and durable rights to admit writes of one token without asking the "
        "store. Idle ones are given back.", "short",
        [query(total(instances("fencegate_cells")), "resources"), query(total(instances("fencegate_grants")), "grants")],
        width=12, height=7)


def lost():
    return timeseries(
        "What was not told",
        "Log lines dropped because nobody took them fast enough, and spans that no collector took. The decisions "
        "themselves are not affected.", "cps",
        [query(rate(instances("fencegate_log_lines_dropped_total")), "log lines dropped"),
         query(rate(instances("fencegate_trace_spans_total", 'result!="exported"'), "result"), "spans {{result}}")],
        width=12, height=7)
