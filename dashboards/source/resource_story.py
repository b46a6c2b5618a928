"""One resource's story: who holds it, what was accepted for it, and what its route does meanwhile."""

from page import annotation, choice, common_variables, dashboard, rise
from panels import BLUE, RED, colour, heatmap, query, stat, state_timeline, timeseries, words
from promql import INVALID_TOKEN, buckets, instances, quantile, rate, rejections, routes, total

DESCRIPTION = (
    "The story of one resource of the configuration's metrics.resources: the token of its lease, the highest token "
    "accepted for it, every handover; and its route meanwhile. Choose its route at the top. Where each gateway has a "
    "store of its own (SQLite), choose one instance."
)
THIRD = {"width": 8, "height": 8}
SMALL = {"width": 6, "height": 4}


def series(kind):
    """The resource's token as each gateway says it."""
    return instances("fencegate_token", f'kind="{kind}"', 'resource="$resource"')


def token(kind):
    """The resource's token, which all gateways of a job say alike."""
    return f"max by (job) ({series(kind)})"


def build():
    """The whole dashboard."""
    values = f"label_values({instances('fencegate_token')}, resource)"
    resource = choice("resource", "Resource", values, multi=False)
    rows = [
        ("Now", [state(), current(), highest(), handovers_now()]),
        ("Tokens", [tokens(), holder(), handovers()]),
        ("Its route meanwhile", [decisions(), stale(), stale_ages(), invalid(), in_doubt(), drain(), times(), leases()]),
    ]
    return dashboard("fencegate-resource", "Fencegate / A resource's story", DESCRIPTION,
                     [*common_variables(), resource], annotations(), rows)


def annotations():
    """Every raise and every lease of this one resource: few enough, and they are the story."""
    return [
        annotation("Raises", BLUE, changed("highest"), "Mark of $resource raised", "A newer token was accepted."),
        annotation("Leases", "green", f"({changed('current')}) > 0", "New holder of $resource",
                   "The lease has another token than before."),
        annotation("Epochs", "purple", rise(instances("fencegate_coordinator_epoch")), "New epoch of {{job}}",
                   "An operator adopted a new history of the coordinator: tokens may begin anew."),
    ]


def changed(kind):
    """Where the token became another one."""
    return f"{token(kind)} != max by (job) ({series(kind)} offset $__interval)"


#: 0 nobody, 1 the holder has written, 2 the holder has not written yet, 3 the mark is above the holder's token.
STATES = words({0: ("free", "semi-dark-blue"), 1: ("held, has written", "green"),
                2: ("held, has not written", "yellow"), 3: ("shut out", RED)})


def standing():
    """The state as a number; a comparison with `bool` is 0 or 1."""
    current_, highest_ = token("current"), token("highest")
    is_held = f"({current_} > bool 0)"
    return f"{is_held} * (1 + ({current_} > bool {highest_}) + 2 * ({current_} < bool {highest_}))"


MEANING = (
    "free: nobody has the lease. held, has written: the holder's token is the mark. held, has not written: the mark is "
    "still an earlier holder's. shut out: the mark is above the holder's token, by an operator's raise, or a new epoch "
    "in which the holder has not written."
)


def state():
    return stat("State", MEANING, "none", [query(standing(), "{{job}}")], mappings=STATES, thresholds=[(3, RED)],
                alerts=["FencegateStaleWritesRising"], **SMALL)


def current():
    return stat("Current token", "Of the lease that is held now; 0 if there is none.", "none",
                [query(token("current"), "{{job}}")], decimals=0, **SMALL)


def highest():
    return stat("Highest token", "The fence's mark: writes with a lower token are refused. 0 if there was none yet.",
                "none", [query(token("highest"), "{{job}}")], decimals=0, **SMALL)


def handovers_now():
    return stat("Handovers", "Marks raised in the time shown, as far as scrapes saw them.", "short",
                [query(f"max by (job) (changes({series('highest')}[$__range]))", "{{job}}")], decimals=0, **SMALL)


def tokens():
    return timeseries(
        "Tokens",
        "Current: of the lease. Highest: of the newest writer. They part between a lease and its first write. The current "
        "one falls to 0 when nobody holds the lease; both may fall in a new epoch.", "none",
        [query(token("current"), "{{job}} current"), query(token("highest"), "{{job}} highest")],
        step=True, calcs=["lastNotNull"], overrides=[], width=24, height=9)


def holder():
    return state_timeline("Who stands where", MEANING, "none", [query(standing(), "{{job}}")], STATES,
                          alerts=["FencegateStaleWritesRising"], width=16, height=6)


def handovers():
    return timeseries(
        "Changes", "Leases that began or ended, and marks that were raised, between two points, as far as scrapes saw them.",
        "short",
        [query(f"max by (job) (changes({series('current')}[$__rate_interval]))", "{{job}} lease"),
         query(f"max by (job) (changes({series('highest')}[$__rate_interval]))", "{{job}} mark")],
        step=True, width=8, height=6)


def decisions():
    return timeseries(
        "Fenced writes of the route", "By decision, of all of the route's resources.", "reqps",
        [query(rate(routes("fencegate_admission_decisions_total"), "decision"), "{{decision}}")],
        stack=True, overrides=[colour("admitted", "green"), colour("refused", "orange")],
        alerts=["FencegateWritesRefused", "FencegateFencedRouteSilent"], **THIRD)


def stale():
    return timeseries(
        "Stale writes of the route", "Writes with a token below the mark of their resource. The log names it.", "reqps",
        [query(rate(rejections("stale_fencing_token"), "route"), "{{route}}")],
        alerts=["FencegateStaleWritesRising"], **THIRD)


def stale_ages():
    return heatmap(
        "How late they are", "For how long the newer token had been accepted when a stale write of the route came.", "s",
        buckets("fencegate_stale_write_age_seconds"), alerts=["FencegateStaleWritesRising"], **THIRD)


def invalid():
    return timeseries(
        "Writes of the route without a token of their own", "No token, an unreadable one, or one that is not the holder's.",
        "reqps", [query(rate(rejections(INVALID_TOKEN), "code") + " > 0", "{{code}}")],
        alerts=["FencegateWritesRefused"], **THIRD)


def in_doubt():
    return timeseries(
        "Writes of the route that came into doubt", "By reason. `fencegate fence in-doubt` says of which resource.", "reqps",
        [query(rate(routes("fencegate_in_doubt_writes_total"), "reason"), "{{reason}}")], stack=True,
        alerts=["FencegateWritesInDoubt"], **THIRD)


def drain():
    return heatmap(
        "Drain", "How long new holders of any resource waited for older writes to be over.", "s",
        buckets("fencegate_drain_duration_seconds", instances), alerts=["FencegateDrainStuck"], **THIRD)


def times():
    names = {"request": "fencegate_request_duration_seconds", "upstream": "fencegate_upstream_duration_seconds",
             "admission that waited": "fencegate_admission_duration_seconds"}
    return timeseries(
        "Times of the route", "99 of 100 took no longer: requests, their part at the API, and admissions that waited.", "s",
        [query(quantile(0.99, metric), name) for name, metric in names.items()],
        alerts=["FencegateUpstreamFailing"], width=12, height=8)


def leases():
    return timeseries(
        "Leases of all resources",
        "Held (not counted with etcd), and acquisitions that wait; leases lost by expiry per second. What is lost here is "
        "late there.", "short",
        [query(f"sum(max by (job) ({instances('fencegate_leases_held')}))", "held"),
         query(total(instances("fencegate_lease_waiters")), "waiting"),
         query(rate(instances("fencegate_leases_lost_total")), "lost per second")],
        alerts=["FencegateLeaseRenewalsFailing", "FencegateLeasesWithoutWrites"], width=12, height=8)
