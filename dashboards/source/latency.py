"""Is it fast: what a request takes, and where the time goes."""

from panels import heatmap, query, timeseries
from promql import buckets, instances, quantile, rate, routes

HALF = {"width": 12, "height": 8}
THIRD = {"width": 8, "height": 8}
REQUEST = "fencegate_request_duration_seconds"


def panels():
    return [requests(), by_route(), memory(), *heatmaps(), stages()]


def requests():
    shares = [("half", 0.5), ("95 of 100", 0.95), ("99 of 100", 0.99)]
    return timeseries(
        "Time to the answer",
        "From a request's head to the head of its answer, refusals included: half of all requests took no longer than "
        "the lowest line. Most of it is the API's own time.", "s",
        [query(quantile(q, REQUEST), name, exemplar=q == 0.99) for name, q in shares], **THIRD)


def by_route():
    return timeseries(
        "Time to the answer, by route", "99 of 100 requests of a route took no longer, refusals included.", "s",
        [query(quantile(0.99, REQUEST, "route"), "{{route}}")], **THIRD)


def memory():
    decided = "fencegate_admission_decisions_total"
    from_memory = routes(decided, 'path="memory"')
    return timeseries(
        "Decided from memory",
        "Share of fenced writes that were decided without store, coordinator or waiting. Low: holders write little "
        "under each lease, or resources leave memory (limits.cells).", "percentunit",
        [query(f"{rate(from_memory)} / {rate(routes(decided))}", "from memory")], full=True, calcs=["min", "lastNotNull"],
        alerts=["FencegateFencedRouteSilent"], **THIRD)


def heatmaps():
    return [
        heatmap("Admission that had to wait",
                "How long fenced writes that could not be decided from memory took until they were admitted or refused: "
                "the first write under a lease, as a rule.", "s",
                buckets("fencegate_admission_duration_seconds"), alerts=["FencegateDrainStuck"], **HALF),
        heatmap("Raise",
                "Until the store had durably recorded a mark or a grant. What the disk takes, and the network to it.",
                "s", buckets("fencegate_raise_duration_seconds", instances), alerts=["FencegateStoreUnavailable"], **HALF),
        heatmap("Drain",
                "How long new holders waited for older writes of their resource to be over. Bounded by the route's drain "
                "limit and the upstream's settle time.", "s",
                buckets("fencegate_drain_duration_seconds", instances), alerts=["FencegateDrainStuck"], **HALF),
        heatmap("Upstream", "From sending to the API to the head of its final answer.", "s",
                buckets("fencegate_upstream_duration_seconds"), alerts=["FencegateUpstreamFailing"], **HALF),
    ]


def stages():
    stage = {
        "request": (REQUEST, routes),
        "upstream": ("fencegate_upstream_duration_seconds", routes),
        "admission that waited": ("fencegate_admission_duration_seconds", routes),
        "raise": ("fencegate_raise_duration_seconds", instances),
        "drain": ("fencegate_drain_duration_seconds", instances),
        "coordinator": ("fencegate_coordinator_duration_seconds", instances),
    }
    return timeseries(
        "Where the time goes",
        "99 of 100 took no longer, by stage. Admission waits for coordinator, raise and drain; the request for all of "
        "them and the API.", "s",
        [query(quantile(0.99, metric, select=select), name) for name, (metric, select) in stage.items()],
        alerts=["FencegateDrainStuck", "FencegateUpstreamFailing"], width=24, height=8)
