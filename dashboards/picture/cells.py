"""Heatmaps and state timelines."""

import numpy
from matplotlib.colors import PowerNorm

from axes import marks, series_of, time_axis
from look import CLASSIC, NAMED, TEXT, nothing, word
from units import written


def heatmap(box, panel, answer, told):
    """Buckets are cumulative: a cell is what a bucket has above the one below it."""
    found = sorted(series_of(answer), key=lambda series: float(series["labels"]["le"]))
    step = answer["step"]
    times = sorted({time for series in found for time, _ in series["points"]})
    if not times:
        return nothing(box, panel)
    column = {time: at for at, time in enumerate(times)}
    cells = numpy.zeros((len(found), len(times)))
    for row, series in enumerate(found):
        for time, value in series["points"]:
            cells[row, column[time]] = value or 0
    cells = numpy.diff(cells, axis=0, prepend=0)
    cells[cells < 1e-9] = numpy.nan
    seen = numpy.where(~numpy.isnan(cells).all(axis=1))[0]
    low, high = (max(seen[0] - 1, 0), min(seen[-1] + 1, len(found) - 1)) if len(seen) else (0, len(found) - 1)
    axes = box.axes(left=56, top=4, right=6, bottom=18)
    time_axis(axes, told)
    marks(axes, told)
    edges = numpy.append(times, times[-1] + step) - step
    norm = PowerNorm(0.5, vmin=0, vmax=max(numpy.nanmax(cells), 1e-6) if len(seen) else 1)
    axes.pcolormesh(edges, numpy.arange(low, high + 2), cells[low : high + 1], cmap="Spectral_r", norm=norm)
    names = [series["labels"]["le"] for series in found[low : high + 1]]
    texts = ["+Inf" if name == "+Inf" else written(float(name), panel["options"]["yAxis"]["unit"]) for name in names]
    every = max(1, len(texts) // 10)
    axes.set_yticks(numpy.arange(low, high + 1)[::every] + 1, texts[::every])
    axes.set_ylim(low, high + 1)


def state_timeline(box, panel, answer, told):
    found = series_of(answer)
    if not found:
        return nothing(box, panel)
    mappings = panel["fieldConfig"]["defaults"]["mappings"]
    axes = box.axes(left=76, top=4, right=6, bottom=34)
    time_axis(axes, told)
    for row, series in enumerate(found):
        for first, last, value in states(series, answer["step"]):
            text, colour = word(mappings, value) or (written(value, "none"), CLASSIC[0])
            axes.barh(row, last - first, left=first, height=0.8, color=colour, alpha=0.8, linewidth=0)
            if (last - first) / (told["end"] - told["start"]) * box.w > 6.5 * len(text):
                axes.text(first + 1, row, text, va="center", size=7, color=TEXT)
    axes.set_yticks(range(len(found)), [series["legend"] for series in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    x = 10
    for mapping in mappings:
        for entry in mapping["options"].values():
            box.text(x, box.h - 4, "■", size=8, color=NAMED.get(entry["color"], entry["color"]))
            box.text(x + 12, box.h - 4, entry["text"], size=7.5)
            x += 24 + 6 * len(entry["text"])


def states(series, step):
    """From, to and value of each stretch of one value."""
    out = []
    for time, value in series["points"]:
        if value is None:
            continue
        if out and out[-1][2] == value and time - out[-1][1] <= step:
            out[-1][1] = time + step
        else:
            out.append([time, time + step, value])
    return out
