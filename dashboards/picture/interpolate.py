"""Variables as Grafana puts them into a query for Prometheus."""

import math
import re

#: Steps that Grafana rounds intervals to, in seconds.
ROUND = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400]
#: Pixels of a column of the grid on an ordinary screen.
COLUMN = 75


def step_of(panel, seconds, scrape):
    """`$__interval` in seconds: a point per pixel, but none between two scrapes."""
    points = panel.get("maxDataPoints") or panel["gridPos"]["w"] * COLUMN
    wanted = max(seconds / points, scrape)
    return next((step for step in ROUND if step >= wanted), ROUND[-1])


def time_variables(step, seconds, scrape):
    """Those that Grafana makes of the time shown."""
    rate = max(step + scrape, 4 * scrape)
    return {
        "__interval": f"{step}s",
        "__interval_ms": str(step * 1000),
        "__rate_interval": f"{rate}s",
        "__range": f"{math.ceil(seconds)}s",
        "__range_s": str(math.ceil(seconds)),
    }


def value_of(variable, chosen, options):
    """What stands for a variable in a query. `chosen` are values, or nothing for the default."""
    is_many = variable.get("multi") or variable.get("includeAll")
    if not chosen and variable.get("includeAll"):
        if "allValue" in variable:
            return variable["allValue"]
        chosen = options
    chosen = chosen or options[:1]
    if not is_many:
        return chosen[0].replace("\\", "\\\\").replace("'", "\\\\'") if chosen else ""
    escaped = [re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\\\\\\\")) for value in chosen]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def interpolate(text, values):
    """Replaces `$name` and `${name}`; what is not a variable stays."""
    def value(match):
        return values.get(match[1] or match[2], match[0])
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)
