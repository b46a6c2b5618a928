"""Panels as Grafana wants them: each maker gives one panel without id and place.

A maker insists on what each panel owes its reader: a description and a unit. What is not said here is left to
Grafana's defaults.
"""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}

GREEN, YELLOW, ORANGE, RED, BLUE = "green", "yellow", "orange", "red", "blue"
#: Of the share that is left of an instance's lease, which is renewed every third of its time.
LEASE_ENDS = [(None, RED), (0.4, YELLOW), (0.6, GREEN)]


def query(expr, legend="", *, exemplar=False):
    """A query over the time shown."""
    return {"expr": expr, "legendFormat": legend, "range": True, "instant": False, "exemplar": exemplar}


def at_end(expr, legend="", *, table=False):
    """A query for the end of the time shown."""
    shape = {"format": "table"} if table else {}
    return {"expr": expr, "legendFormat": legend, "range": False, "instant": True, **shape}


def steps(*limits):
    """Thresholds: green, then each `(from, colour)`, unless the first one says what it begins with."""
    lowest = [] if limits and limits[0][0] is None else [{"color": GREEN, "value": None}]
    return lowest + [{"color": colour, "value": at} for at, colour in limits]


def colour(name, fixed):
    """Gives the series of this name a colour that means something."""
    return by_name(name, ("color", {"mode": "fixed", "fixedColor": fixed}))


def by_name(name, *properties):
    """Overrides for the series or column of this name."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties],
    }


def words(texts):
    """Shows numbers as words: `{0: ("as known", GREEN)}`."""
    options = {
        str(value): {"text": text, "color": shade, "index": at}
        for at, (value, (text, shade)) in enumerate(texts.items())
    }
    return [{"type": "value", "options": options}]


def timeseries(title, description, unit, queries, *, stack=False, full=False, thresholds=(), overrides=(),
               calcs=("max", "lastNotNull"), step=False, **place):
    """Lines over time; stacked areas with `stack`; a line at each threshold."""
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if stack else 8,
        "showPoints": "never",
        "lineInterpolation": "stepAfter" if step else "linear",
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if thresholds else "off"},
    }
    defaults = {"unit": unit, "min": 0, "custom": custom, "color": {"mode": "palette-classic"}}
    if full:
        defaults["max"] = 1
    legend = {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": list(calcs)}
    if "max" in calcs:
        # What matters first: of thirty lines one sees five without scrolling.
        legend |= {"sortBy": "Max", "sortDesc": True}
    options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, description, queries, defaults, options, thresholds, overrides, **place)


def stat(title, description, unit, queries, *, thresholds=(), mappings=(), nothing=None, decimals=None, **place):
    """The latest value, large, coloured by its threshold."""
    defaults = {"unit": unit, "color": {"mode": "thresholds"}, "mappings": list(mappings)}
    if nothing is not None:
        defaults["noValue"] = nothing
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "none",
        "textMode": "value_and_name" if len(queries) > 1 else "value",
        "justifyMode": "auto",
        "orientation": "auto",
    }
    return panel("stat", title, description, queries, defaults, options, thresholds, **place)


def heatmap(title, description, unit, expr, **place):
    """The buckets of a histogram over time."""
    target = {**query(expr, "{{le}}"), "format": "heatmap"}
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Spectral", "exponent": 0.5, "steps": 64, "fill": "dark-orange",
                  "scale": "exponential", "reverse": True},
        "yAxis": {"unit": unit, "axisPlacement": "left"},
        "rowsFrame": {"layout": "auto"},
        "cellValues": {"unit": "reqps"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
        "showValue": "never",
    }
    return {**panel("heatmap", title, description, [target], {"unit": unit}, options, **place), "maxDataPoints": 120}


def table(title, description, unit, labels, columns, *, hidden=(), sort=None, overrides=(), **place):
    """Rows by label: first `labels`, as `(label, name)`, then `columns`, as `(name, expr)`, each the value of a query;
    `hidden` ones are only for the labels that their query brings."""
    queries = [at_end(expr, table=True) for _, expr in columns]
    values = {f"Value #{letter(at)}": name for at, (name, _) in enumerate(columns)}
    if len(columns) == 1:
        # A single frame's value column has no letter.
        values = {"Value": columns[0][0]}
    fields = ["Time", *dict(labels), *values]
    transformations = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {field: True for field in fields if field == "Time" or values.get(field) in hidden},
                "indexByName": {field: at for at, field in enumerate(fields)},
                "renameByName": dict(labels) | values,
            },
        },
    ]
    options = {"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": sort, "desc": True}] if sort else []}
    defaults = {"unit": unit, "custom": {"align": "auto", "inspect": False}, "noValue": "–"}
    made = panel("table", title, description, queries, defaults, options, overrides=overrides, **place)
    return {**made, "transformations": transformations}


def state_timeline(title, description, unit, queries, mappings, **place):
    """One bar per series, coloured by state."""
    defaults = {
        "unit": unit,
        "color": {"mode": "thresholds"},
        "custom": {"lineWidth": 0, "fillOpacity": 80},
        "mappings": mappings,
    }
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.85,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return panel("state-timeline", title, description, queries, defaults, options, **place)


def letter(at):
    """The name of the query at this place."""
    return chr(ord("A") + at)


def panel(kind, title, description, queries, defaults, options, thresholds=(), overrides=(), *, width, height,
          alerts=()):
    """A panel of any kind; `alerts` are the names of the alerts whose runbooks it links to."""
    targets = [
        {"refId": letter(at), "datasource": SOURCE, "editorMode": "code", **target}
        for at, target in enumerate(queries)
    ]
    defaults = {**defaults, "thresholds": {"mode": "absolute", "steps": steps(*thresholds)}}
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": {"w": width, "h": height},
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options,
        "targets": targets,
        "links": [runbook(name) for name in alerts],
    }


def runbook(alert):
    """The link to an alert's runbook, whose file is the alert's name in kebab-case."""
    file = "".join("-" + c.lower() if c.isupper() else c for c in alert).lstrip("-")
    return {"title": f"Runbook: {alert}", "url": "${runbooks}" + file + ".md", "targetBlank": True}
