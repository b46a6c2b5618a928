"""Numbers as Grafana writes them."""

import math

#: Seconds, largest first, with the unit's name and size.
SECONDS = [(86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")]
BYTES = [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")]
#: Rates per second.
RATES = {"reqps": " req/s", "cps": " c/s", "ops": " ops/s"}


def written(value, unit, decimals=None):
    """A number with its unit."""
    if value is None:
        return "–"
    if unit == "percentunit":
        return f"{rounded(value * 100, decimals)}%"
    if unit in ("s", "dtdurations"):
        return scaled(value, SECONDS, decimals)
    if unit == "bytes":
        return scaled(value, BYTES, decimals)
    if unit in ("none", "string"):
        return rounded(value, decimals, 10)
    for size, name in ((1e9, " Bil"), (1e6, " Mil"), (1e3, " K")):
        if abs(value) >= size:
            return rounded(value / size, decimals) + name + RATES.get(unit, "")
    return rounded(value, decimals) + RATES.get(unit, "")


def scaled(value, sizes, decimals):
    for size, name in sizes:
        if abs(value) >= size:
            return f"{rounded(value / size, decimals)} {name}"
    return f"{rounded(value / sizes[-1][0], decimals)} {sizes[-1][1]}" if value else f"0 {sizes[-2][1]}"


def rounded(value, decimals=None, digits=3):
    """Three digits that count, unless it is said otherwise."""
    if decimals is None:
        whole = math.floor(math.log10(abs(value))) + 1 if value else 1
        decimals = max(0, min(digits - whole, 3))
        text = f"{value:.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{decimals}f}"
