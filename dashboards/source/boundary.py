"""Who is let in, and by what: certificates, credentials, the configuration."""

from panels import GREEN, RED, YELLOW, colour, query, timeseries
from promql import instances, rate

THIRD = {"width": 8, "height": 8}
DAY = 86400


def panels():
    return [certificates(), refused(), reloads()]


def certificates():
    end = f"min by (certificate) ({instances('fencegate_certificate_expiry_timestamp_seconds')})"
    return timeseries(
        "Certificates: time left", "Until the certificate of each use ends, on the instance whose one ends first.", "s",
        [query(f"{end} - time()", "{{certificate}}")], calcs=["lastNotNull"],
        thresholds=[(None, RED), (2 * DAY, YELLOW), (14 * DAY, GREEN)], alerts=["FencegateCertificateExpiring"], **THIRD)


def refused():
    return timeseries(
        "Access refused", "Requests to the lease and admin listeners without credentials that are known, or without the "
        "right to what they asked for.", "reqps",
        [query(rate(instances("fencegate_access_refusals_total"), "listener, reason"), "{{listener}}: {{reason}}")],
        alerts=["FencegateAccessRefused"], **THIRD)


def reloads():
    last = f"max by (job) (time() - {instances('fencegate_config_reload_success_timestamp_seconds')})"
    return timeseries(
        "Configuration", "Reloads by result, and for how long the oldest configuration of a job has been in use.", "cps",
        [query(rate(instances("fencegate_config_reloads_total"), "result"), "{{result}}"), query(last, "{{job}} in use for")],
        overrides=[colour("refused", RED)], alerts=["FencegateConfigRefused"], **THIRD)
