"""Lays a dashboard out by its grid and draws each panel from what was asked."""

import io

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from PIL import Image

import cells
import figures
import lines
import look

#: Pixels of a column and of a row of the grid.
COLUMN, ROW = 56, 32
#: Of the picture in all: the header with the values of the variables.
HEADER = 70
KINDS = {
    "timeseries": lines.timeseries,
    "stat": figures.stat,
    "heatmap": cells.heatmap,
    "table": figures.table,
    "state-timeline": cells.state_timeline,
}
#: In which a picture of a few flat colours is small and still looks right.
COLOURS = 160


def draw(board, told, file):
    """Writes the picture of a dashboard."""
    look.set_up()
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    width, height = 24 * COLUMN, bottom * ROW + HEADER
    figure = pyplot.figure(figsize=(width / 100, height / 100), dpi=100, facecolor=look.BACKGROUND)
    header(figure, board, told, height)
    answers = {panel["id"]: panel for panel in told["panels"]}
    for panel in board["panels"]:
        place = panel["gridPos"]
        box = look.Box(figure, place["x"] * COLUMN, HEADER + place["y"] * ROW, place["w"] * COLUMN, place["h"] * ROW)
        if panel["type"] == "row":
            box.text(10, ROW / 2 + 5, "▾  " + panel["title"], size=11, weight="bold")
            continue
        box = look.frame(box, panel)
        KINDS[panel["type"]](box, panel, answers[panel["id"]], told)
    save(figure, file)
    pyplot.close(figure)


def header(figure, board, told, height):
    box = look.Box(figure, 0, 0, 24 * COLUMN, HEADER)
    box.text(12, 26, board["title"], size=15, weight="bold")
    shown = {name: value for name, value in told["values"].items() if name not in ("datasource", "runbooks")}
    box.text(12, 52, "   ".join(f"{name}: {value}" for name, value in shown.items()), size=9, color=look.MUTED)


def save(figure, file):
    """As a palette: a quarter of the size."""
    raw = io.BytesIO()
    figure.savefig(raw, format="png", facecolor=figure.get_facecolor())
    picture = Image.open(raw).convert("RGB")
    picture.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(file, optimize=True)
