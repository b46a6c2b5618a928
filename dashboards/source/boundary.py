"""Who is let in, and by what: certificates."""

from panels import GREEN, RED, YELLOW, query, timeseries
from promql import instances

THIRD = {"width": 8, "height": 8}
DAY = 86400


def panels():
    return [certificates()]


def certificates():
    end = f"min by (certificate) ({instances('fencegate_certificate_expiry_timestamp_seconds')})"
    return timeseries(
        "Certificates: time left", "Until the certificate of each use ends, on the instance whose one ends first.", "s",
        [query(f"{end} - time()", "{{certificate}}")], calcs=["lastNotNull"],
        thresholds=[(None, RED), (2 * DAY, YELLOW), (14 * DAY, GREEN)], alerts=["FencegateCertificateExpiring"], **THIRD)
