"""PromQL in the few forms that the dashboards need.

Every selector carries the dashboard's variables, so that a query means the same for one gateway and for thirty.
Windows are `$__rate_interval`, or `$__range` where a panel counts over all of the time shown; never a fixed one,
which would be empty or blurred at another scrape interval or zoom.
"""

#: Of every metric of an instance.
INSTANCE = 'namespace=~"$namespace",job=~"$job",instance=~"$instance"'
#: Of metrics that have a route.
ROUTE = INSTANCE + ',route=~"$route"'
#: New tokens that nobody can confirm, or record.
FAILS_CLOSED = "fence_store_unavailable|coordinator_unavailable|coordinator_changed"
#: Clients that send no token, or none that was ever theirs to use.
INVALID_TOKEN = (
    "fencing_token_required|fencing_token_not_held|malformed_fencing_token|ambiguous_fencing_token"
)


def instances(metric, *more):
    """The series of a metric on the chosen instances; `more` are further matchers."""
    return f"{metric}{{{','.join((INSTANCE, *more))}}}"


def routes(metric, *more):
    """The series of a metric on the chosen instances and routes."""
    return f"{metric}{{{','.join((ROUTE, *more))}}}"


def rejections(codes):
    """Answers of the gateway itself with these codes (a regular expression)."""
    return routes("fencegate_rejections_total", f'code=~"{codes}"')


def total(what, by=""):
    """Sum over instances."""
    return f"sum by ({by}) ({what})" if by else f"sum({what})"


def rate(series, by=""):
    """Per second, summed over instances."""
    return total(f"rate({series}[$__rate_interval])", by)


def increase(series, by=""):
    """How often in all of the time shown, summed over instances."""
    return total(f"increase({series}[$__range])", by)


def quantile(q, metric, by="", select=routes):
    """A quantile over all instances, from the buckets of a histogram."""
    groups = ", ".join(filter(None, ("le", by)))
    return f"histogram_quantile({q}, {rate(select(metric + '_bucket'), groups)})"


def buckets(metric, select=routes):
    """How many observations per second fall into each bucket, for a heatmap."""
    return rate(select(metric + "_bucket"), "le")


def fullness(used, limit):
    """What the fullest instance uses of a limit, 0 to 1."""
    return f"max({instances(used)} / {instances(limit)})"


def risen(series):
    """Those of a counter's series that are higher than at the point before, or than when they were last seen: an
    instance that was suspended was not scraped meanwhile, and a rate would miss what it counted then."""
    return f"({series} > last_over_time({series}[$__range] offset $__interval))"


def since_last_seen(series):
    """By how much counters rose since the point before, or since they were last seen; for the same reason."""
    return f"sum(clamp_min({series} - last_over_time({series}[$__range] offset $__interval), 0))"


def lease_left():
    """Share of its own lease in the store that each instance has left. Age and rest make the whole, whatever is
    configured; with SQLite the rest is endless, and there is no share."""
    left = instances("fencegate_instance_lease_remaining_seconds")
    return f"({left} < Inf) / ({left} + {instances('fencegate_instance_lease_age_seconds')})"


def is_gateway(series):
    """Leaves of a series that Prometheus makes for every target those of gateways: all that have been seen."""
    seen = f"max_over_time({instances('fencegate_ready')}[$__range])"
    return f"{series} and on (job, instance) {seen}"
