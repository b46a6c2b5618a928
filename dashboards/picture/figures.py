"""What is shown in figures: stats and tables."""

from axes import series_of, unit_of
from look import MUTED, PANEL, TEXT, Box, nothing, override, reached, word
from units import written


def stat(box, panel, answer, told):
    found = []
    for series in series_of(answer):
        values = [value for _, value in series["points"] if value is not None]
        if values:
            found.append((series["legend"], values[-1]))
    if not found:
        box.fill("#56a64b" if "noValue" in panel["fieldConfig"]["defaults"] else PANEL)
        text = panel["fieldConfig"]["defaults"].get("noValue", "No data")
        box.text(box.w / 2, box.h / 2 + 6, text, ha="center", size=13, color="white")
        return
    defaults = panel["fieldConfig"]["defaults"]
    part = box.w / len(found)
    for at, (name, value) in enumerate(found):
        mapped = word(defaults.get("mappings"), value)
        text, colour = mapped or (written(value, defaults["unit"], defaults.get("decimals")), reached(panel, value))
        inner = Box(box.figure, box.x + at * part, box.y, part - 2, box.h)
        inner.fill(colour)
        size = min(21, 1.05 * inner.w / max(len(text), 4))
        inner.text(inner.w / 2, inner.h / 2 + size * 0.55, text, ha="center", size=size, color="white", weight="bold")
        if len(found) > 1:
            inner.text(inner.w / 2, inner.h - 8, name, ha="center", size=7.5, color="white")


def table(box, panel, answer, told):
    columns, rows = merged(panel, answer)
    sort = panel["options"]["sortBy"]
    if sort and sort[0]["displayName"] in columns:
        rows.sort(key=lambda row: row.get(sort[0]["displayName"]) or 0, reverse=True)
    if not rows:
        return nothing(box, panel)
    wide = {name: max(len(name), *(len(str(shown(panel, name, row.get(name))[0])) for row in rows)) + 2 for name in columns}
    per = box.w / sum(wide.values())
    x = 8
    for name in columns:
        box.text(x, 14, name, size=7.5, weight="bold", color="#3274d9")
        for at, row in enumerate(rows[: int(box.h / 19) - 1]):
            text, colour = shown(panel, name, row.get(name))
            box.text(x, 34 + 19 * at, text, size=8, color=colour)
        x += wide[name] * per


def shown(panel, name, value):
    if isinstance(value, str):
        return value, TEXT
    if value is None:
        return panel["fieldConfig"]["defaults"].get("noValue", ""), MUTED
    mapped = word(override(panel, name, "mappings"), value)
    return mapped or (written(value, unit_of(panel, name), override(panel, name, "decimals")), TEXT)


def merged(panel, answer):
    """Rows by the labels that all queries have, as Grafana's merge, with columns renamed and left out."""
    organize = next(it["options"] for it in panel["transformations"] if it["id"] == "organize")
    names, hidden, order = (organize[key] for key in ("renameByName", "excludeByName", "indexByName"))
    targets = [target for target in answer["targets"] if target["series"]]
    labels = [set(series["labels"]) for target in targets for series in target["series"]]
    common = sorted(set.intersection(*labels)) if labels else []
    rows = {}
    for target in targets:
        value = names.get(f"Value #{target['refId']}", "Value")
        for series in target["series"]:
            cells = {names.get(key, key): text for key, text in series["labels"].items()}
            row = rows.setdefault(tuple(series["labels"][key] for key in common), {})
            row.update(cells | {value: series["points"][-1][1]})
    fields = sorted((field for field in order if field not in hidden), key=order.get)
    return [names[field] for field in fields], list(rows.values())
