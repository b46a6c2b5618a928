"""Leases: who takes and loses them, and how long that takes."""

from panels import RED, colour, heatmap, query, timeseries
from promql import buckets, instances, quantile, rate, total

THIRD = {"width": 8, "height": 8}


def panels():
    return [turnover(), held(), renewals_failed(), renewals(), waits(), ages()]


def turnover():
    events = {"acquired": "leases_acquired", "released": "leases_released", "lost": "leases_lost",
              "superseded": "leases_superseded", "refused as held": "lease_acquisitions_held"}
    return timeseries(
        "Leases acquired, released, lost",
        "Lost: ended by expiry, so its worker paused, died or was cut off. Superseded: its own owner acquired again. Held: "
        "somebody else had it. Leases that workers take from etcd or PostgreSQL themselves show only when they expire.",
        "cps", [query(rate(instances(f"fencegate_{metric}_total")), name) for name, metric in events.items()],
        overrides=[colour("lost", RED)], alerts=["FencegateLeaseRenewalsFailing", "FencegateLeasesWithoutWrites"], **THIRD)


def held():
    return timeseries(
        "Leases held, workers that wait",
        "Live leases at the coordinator, and acquisitions under way, nearly all of which wait for another holder. "
        "With etcd the first is not counted.", "short",
        [query(f"sum(max by (job) ({instances('fencegate_leases_held')}))", "held"),
         query(total(instances("fencegate_lease_waiters")), "waiting")],
        alerts=["FencegateLeasesWithoutWrites"], **THIRD)


def renewals_failed():
    return timeseries(
        "Renewals failed",
        "Refused, because the lease was over or not the caller's, or not confirmed by the coordinator. Their workers are "
        "about to stop.", "cps",
        [query(rate(instances("fencegate_lease_renewals_failed_total")), "failed")],
        alerts=["FencegateLeaseRenewalsFailing"], overrides=[colour("failed", RED)], **THIRD)


def renewals():
    return heatmap(
        "Renewal of leases",
        "From the request for a renewal to its answer. A third of the lease's time, and the worker has missed its first "
        "renewal.", "s", buckets("fencegate_lease_renewal_duration_seconds", instances),
        alerts=["FencegateLeaseRenewalsFailing"], **THIRD)


def waits():
    return spread("Wait for a lease", "From the request for a lease to the lease: mostly the time that another one held it.",
                  "fencegate_lease_acquisition_wait_seconds")


def ages():
    return spread("Age of leases at their end", "From the acquisition of a lease to its release or expiry.",
                  "fencegate_lease_age_seconds")


def spread(title, description, metric):
    return timeseries(
        title, description + " Half took no longer than the lower line, 95 of 100 no longer than the upper.", "s",
        [query(quantile(q, metric, select=instances), name) for name, q in (("half", 0.5), ("95 of 100", 0.95))], **THIRD)
