"""Colours, places and frames: what all panels have in common."""

import matplotlib

BACKGROUND, PANEL, EDGE, TEXT, MUTED = "#f4f5f5", "#ffffff", "#d8d9da", "#24292e", "#6b7079"
#: Of series without a colour of their own, in Grafana's order.
CLASSIC = ["#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#1f60c4", "#b877d9", "#705da0", "#37872d", "#fade2a",
           "#447ebc", "#c15c17", "#890f02", "#0a437c", "#6d1f62", "#584477"]
NAMED = {"green": "#56a64b", "yellow": "#f2cc0c", "orange": "#ff780a", "red": "#e02f44", "blue": "#3274d9",
         "purple": "#a352cc", "semi-dark-blue": "#3274d9"}
TITLE = 24


def set_up():
    matplotlib.rcParams.update({
        "font.family": "DejaVu Sans", "font.size": 8, "text.color": TEXT, "axes.edgecolor": EDGE,
        "xtick.color": MUTED, "ytick.color": MUTED, "axes.labelcolor": MUTED, "axes.linewidth": 0.6,
        "path.simplify": True,
    })


def shade(name):
    """A colour of Grafana by its name."""
    return NAMED.get(name, name)


class Box:
    """A rectangle of the picture in pixels from the upper left."""

    def __init__(self, figure, x, y, w, h):
        self.figure, self.x, self.y, self.w, self.h = figure, x, y, w, h

    def relative(self, x, y):
        """A point of the box as the figure counts: shares, from the lower left."""
        width, height = self.figure.get_size_inches() * self.figure.dpi
        return (self.x + x) / width, 1 - (self.y + y) / height

    def text(self, x, y, text, **style):
        style.setdefault("va", "baseline")
        return self.figure.text(*self.relative(x, y), text, parse_math=False, **style)

    def inner(self, left, top, right, bottom):
        return Box(self.figure, self.x + left, self.y + top, self.w - left - right, self.h - top - bottom)

    def axes(self, left=0, top=0, right=0, bottom=0):
        """A plot that leaves these margins."""
        inner = self.inner(left, top, right, bottom)
        x, y = inner.relative(0, inner.h)
        width, height = self.figure.get_size_inches() * self.figure.dpi
        return self.figure.add_axes((x, y, inner.w / width, inner.h / height))

    def fill(self, colour, edge=None):
        axes = self.axes()
        axes.set_facecolor(colour)
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(edge is not None)
            spine.set_edgecolor(edge or colour)
        axes.set_zorder(-1)


def frame(box, panel):
    """A panel's ground, title and mark of its links; gives what is left for its content."""
    box = box.inner(3, 3, 3, 3)
    box.fill(PANEL, EDGE)
    # What does not fit is cut, as Grafana does it.
    fits = int((box.w - 30) / 6.3)
    title = panel["title"] if len(panel["title"]) <= fits else panel["title"][: fits - 1] + "…"
    box.text(8, 17, title, size=8.5, weight="bold")
    if panel.get("links"):
        box.text(box.w - 16, 17, "↗", size=9, color=MUTED)
    return box.inner(4, TITLE, 4, 4)


def nothing(box, panel):
    """What stands for no data."""
    text = panel["fieldConfig"]["defaults"].get("noValue", "No data")
    box.text(box.w / 2, box.h / 2 + 4, text, ha="center", size=11, color=MUTED)


def override(panel, name, key):
    """What an override says of a series or column of this name."""
    for rule in panel["fieldConfig"]["overrides"]:
        if rule["matcher"]["options"] == name:
            for entry in rule["properties"]:
                if entry["id"] == key:
                    return entry["value"]
    return None


def reached(panel, value):
    """The colour of the highest threshold that a value has reached."""
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    return shade([step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1])


def word(mappings, value):
    """Text and colour that a mapping gives a number."""
    for mapping in mappings or []:
        found = mapping["options"].get(str(int(value))) if float(value).is_integer() else None
        if found:
            return found["text"], shade(found["color"])
    return None
