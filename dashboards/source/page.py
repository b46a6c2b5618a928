"""A dashboard around its rows: variables, annotations, links, and the place of each panel."""

from panels import SOURCE
from promql import INSTANCE

#: Where runbooks are read; a constant of the dashboard, so that it is changed in one place.
RUNBOOKS = "https://github.com/fencegate/fencegate/blob/main/docs/runbooks/"
#: Columns of Grafana's grid.
GRID = 24


def dashboard(uid, title, description, variables, annotations, rows):
    """`rows` are `(title, panels)`; the panels flow from left to right and wrap."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["fencegate"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 41,
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "templating": {"list": variables},
        "annotations": {"list": annotations},
        "links": [other_dashboards()],
        "panels": placed(rows),
    }


def other_dashboards():
    """A menu of the dashboards with the same tag, which takes variables and time along."""
    return {"type": "dashboards", "title": "Fencegate", "tags": ["fencegate"], "asDropdown": False, "icon": "external link",
            "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": ""}


def placed(rows):
    """Gives every panel its id and its place on the grid."""
    out, y = [], 0
    for title, panels in rows:
        out.append({"type": "row", "title": title, "collapsed": False, "panels": [],
                    "gridPos": {"x": 0, "y": y, "w": GRID, "h": 1}})
        y += 1
        x = tallest = 0
        for panel in panels:
            w, h = panel["gridPos"]["w"], panel["gridPos"]["h"]
            if x + w > GRID:
                x, y, tallest = 0, y + tallest, 0
            out.append({**panel, "gridPos": {"x": x, "y": y, "w": w, "h": h}})
            x, tallest = x + w, max(tallest, h)
        y += tallest
    return [{"id": at, **panel} for at, panel in enumerate(out, start=1)]


def common_variables():
    """Which gateways: each list is of what the ones before it leave."""
    return [
        {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1,
         "includeAll": False, "multi": False, "regex": "", "hide": 0},
        {"type": "constant", "name": "runbooks", "label": "Runbooks", "query": RUNBOOKS, "hide": 2,
         "skipUrlSync": True},
        # Targets may have no such label: then `.*` takes them all the same.
        choice("namespace", "Namespace", "label_values(fencegate_ready, namespace)", everything=".*"),
        # Without a value of its own, All is the list of gateways' jobs: `up` knows other targets as well.
        choice("job", "Job", 'label_values(fencegate_ready{namespace=~"$namespace"}, job)'),
        choice("instance", "Instance", 'label_values(fencegate_ready{namespace=~"$namespace",job=~"$job"}, instance)',
               everything=".+"),
        choice("route", "Route", f"label_values(fencegate_requests_total{{{INSTANCE}}}, route)", everything=".+"),
    ]


def choice(name, label, query, *, everything=None, multi=True):
    """A list to choose from; with `multi` several of it, or all, which is the default."""
    variable = {
        "type": "query", "name": name, "label": label, "datasource": SOURCE,
        "query": {"qryType": 1, "query": query, "refId": "Variable"}, "regex": "", "refresh": 2, "sort": 1,
        "hide": 0, "multi": multi, "includeAll": multi,
    }
    if multi:
        variable["current"] = {"selected": True, "text": "All", "value": "$__all"}
    if everything:
        variable["allValue"] = everything
    return variable


def annotation(name, colour, expr, title, text):
    """Marks on every panel while `expr` has a value. `title` and `text` may name labels."""
    return {"name": name, "datasource": SOURCE, "enable": True, "hide": False, "iconColor": colour, "expr": expr,
            "step": "15s", "titleFormat": title, "textFormat": text}


def rise(series):
    """Where a number of a whole job went up, whichever instance saw it first; a restart is no rise. One mark each:
    compared is with the point before."""
    return f"max by (job) ({series}) > max by (job) ({series} offset $__interval)"
