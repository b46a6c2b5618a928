"""Asks a Prometheus what a Grafana would ask it for a dashboard.

Gives plain data: for each variable its values, for each annotation and each query of a panel what was asked and the
series that came back.
"""

import json
import re
import urllib.error
import urllib.parse
import urllib.request

from interpolate import interpolate, step_of, time_variables, value_of


class Prometheus:
    """The HTTP API of one server; `scrape` is its scrape interval in seconds, as Grafana's data source is told."""

    def __init__(self, url, scrape):
        self.url, self.scrape = url.rstrip("/"), scrape

    def get(self, path, **parameters):
        query = urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{error.read().decode()}\nwas the answer to {parameters}") from error

    def over(self, expr, start, end, step):
        """Points at multiples of the step, as Grafana asks for them."""
        first, last = start // step * step, end // step * step
        return self.get("query_range", query=expr, start=first, end=last, step=step)["result"]

    def at(self, expr, time):
        return self.get("query", query=expr, time=time)["result"]


def ask(prometheus, board, start, end, chosen):
    """Everything that the dashboard shows between two times, with these values of variables."""
    values, variables = choose(prometheus, board, start, end, chosen)
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    return {
        "uid": board["uid"], "start": start, "end": end, "variables": variables, "values": values,
        "annotations": [ask_annotation(prometheus, it, values, start, end) for it in board["annotations"]["list"]],
        "panels": [ask_panel(prometheus, panel, values, start, end) for panel in panels],
    }


def choose(prometheus, board, start, end, chosen):
    """Values of the variables, each asked with those before it."""
    values, variables = {}, []
    for variable in board["templating"]["list"]:
        name = variable["name"]
        options = [variable["query"]]
        if variable["type"] == "query":
            options = label_values(prometheus, interpolate(variable["query"]["query"], values), start, end)
            variables.append({"name": name, "options": options})
        values[name] = value_of(variable, chosen.get(name, []), options)
    return values, variables


def label_values(prometheus, query, start, end):
    series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
    return prometheus.get(f"label/{label}/values", **{"match[]": series, "start": start, "end": end})


def ask_annotation(prometheus, annotation, values, start, end):
    step = max(int(annotation["step"].removesuffix("s")), prometheus.scrape)
    expr = interpolate(annotation["expr"], values | time_variables(step, end - start, prometheus.scrape))
    return {"name": annotation["name"], "color": annotation["iconColor"], "expr": expr, "step": step,
            "series": [plain(series, "") for series in prometheus.over(expr, start, end, step)]}


def ask_panel(prometheus, panel, values, start, end):
    step = step_of(panel, end - start, prometheus.scrape)
    values = values | time_variables(step, end - start, prometheus.scrape)
    targets = []
    for target in panel["targets"]:
        expr = interpolate(target["expr"], values)
        found = prometheus.at(expr, end) if target["instant"] else prometheus.over(expr, start, end, step)
        series = [plain(it, interpolate(target["legendFormat"], values)) for it in found]
        targets.append({"refId": target["refId"], "expr": expr, "series": series})
    return {"id": panel["id"], "title": panel["title"], "step": step, "targets": targets}


def plain(series, legend):
    """One shape for both kinds of answers; not-a-number is None, as JSON has none."""
    labels = {name: value for name, value in series["metric"].items() if name != "__name__"}
    points = series.get("values") or [series["value"]]
    name = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda label: labels.get(label[1], ""), legend)
    if not name:
        name = ", ".join(f"{key}={value}" for key, value in labels.items()) or "value"
    return {"labels": labels, "legend": name, "points": [[time, number(value)] for time, value in points]}


def number(text):
    value = float(text)
    return None if value != value or value in (float("inf"), float("-inf")) else value
