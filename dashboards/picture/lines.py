"""Time series: lines, steps and stacked areas, with a legend that says what they amount to."""

import math

import numpy
from matplotlib.ticker import MultipleLocator

from axes import marks, series_of, time_axis, unit_of
from look import CLASSIC, MUTED, nothing, override, shade
from units import written

#: Rows of a legend that are shown; Grafana lets one scroll.
LEGEND = 5
LINE = 14
#: Of a legend's columns.
WIDE = 82


def filled(series, step):
    """Times and values with a gap where points are missing."""
    times, values, before = [], [], None
    for time, value in series["points"]:
        if before is not None and time - before > 1.5 * step:
            times.append(before + step)
            values.append(math.nan)
        times.append(time)
        values.append(math.nan if value is None else value)
        before = time
    return numpy.array(times), numpy.array(values)


def colour_of(panel, name, at):
    fixed = override(panel, name, "color")
    return shade(fixed["fixedColor"]) if fixed else CLASSIC[at % len(CLASSIC)]


def timeseries(box, panel, answer, told):
    found = [series for series in series_of(answer) if any(value is not None for _, value in series["points"])]
    if not found:
        return nothing(box, panel)
    custom = panel["fieldConfig"]["defaults"]["custom"]
    calcs = panel["options"]["legend"]["calcs"]
    legend = LINE * (min(len(found), LEGEND) + 1) + 4
    axes = box.axes(left=56, top=4, right=6, bottom=legend + 16)
    time_axis(axes, told)
    marks(axes, told)
    stacked = custom["stacking"]["mode"] == "normal"
    if stacked:
        stack(axes, panel, found, answer["step"], told)
    else:
        for at, series in enumerate(found):
            times, values = filled(series, answer["step"])
            style = {"color": colour_of(panel, series["legend"], at), "linewidth": 1}
            if custom["lineInterpolation"] == "stepAfter":
                axes.step(times, values, where="post", **style)
            else:
                axes.plot(times, values, **style)
                axes.fill_between(times, values, alpha=custom["fillOpacity"] / 100, color=style["color"], linewidth=0)
            lonely(axes, times, values, style["color"])
    scale(axes, panel)
    listed(box, panel, found, calcs, box.h - legend)


def lonely(axes, times, values, colour):
    """Points without neighbours, which a line would not show."""
    is_there = ~numpy.isnan(values)
    before, after = numpy.roll(is_there, 1), numpy.roll(is_there, -1)
    before[0] = after[-1] = False
    alone = is_there & ~before & ~after
    axes.plot(times[alone], values[alone], ".", color=colour, markersize=3)


def stack(axes, panel, found, step, told):
    grid = numpy.arange(told["start"] // step * step, told["end"] + step, step)
    rows = numpy.zeros((len(found), len(grid)))
    for at, series in enumerate(found):
        for time, value in series["points"]:
            rows[at, int(round((time - grid[0]) / step))] = value or 0
    colours = [colour_of(panel, series["legend"], at) for at, series in enumerate(found)]
    axes.stackplot(grid, rows, colors=colours, alpha=0.5, linewidth=0)
    top = numpy.zeros(len(grid))
    for row, colour in zip(rows, colours):
        top = top + row
        axes.plot(grid, numpy.where(row > 0, top, numpy.nan), color=colour, linewidth=1)


def scale(axes, panel):
    defaults = panel["fieldConfig"]["defaults"]
    top = defaults.get("max", max(axes.get_ylim()[1], 1e-9))
    axes.set_ylim(defaults.get("min", 0), top)
    limits = [(step["value"], shade(step["color"])) for step in defaults["thresholds"]["steps"] if step["value"] is not None]
    for value, colour in limits:
        if value <= top and defaults["custom"]["thresholdsStyle"]["mode"] != "off":
            axes.axhline(value, color=colour, linewidth=0.8, linestyle="--")
    unit = defaults["unit"]
    if unit == "bytes":
        axes.yaxis.set_major_locator(MultipleLocator(2 ** math.floor(math.log2(top / 3))))
    ticks = [tick for tick in axes.get_yticks() if 0 <= tick <= top]
    axes.set_yticks(ticks, [written(tick, unit) for tick in ticks])
    axes.grid(axis="y", color="#eceded", linewidth=0.6)
    axes.set_axisbelow(True)


CALCS = {"max": max, "min": min, "lastNotNull": lambda values: values[-1]}
TITLES = {"max": "Max", "min": "Min", "lastNotNull": "Last"}


def listed(box, panel, found, calcs, top):
    """The legend: a table of the series with what they amount to."""
    for at, calc in enumerate(reversed(calcs)):
        box.text(box.w - 8 - WIDE * at, top + LINE - 3, TITLES[calc], ha="right", size=7, color="#3274d9")
    box.text(24, top + LINE - 3, "Name", size=7, color="#3274d9")
    shown = list(enumerate(found))
    if panel["options"]["legend"].get("sortBy") == "Max":
        shown.sort(key=lambda entry: max(value for _, value in entry[1]["points"] if value is not None), reverse=True)
    if len(found) > LEGEND:
        shown = shown[: LEGEND - 1]
    fits = int((box.w - 40 - WIDE * len(calcs)) / 5.2)
    for row, (nth, series) in enumerate(shown, start=2):
        y = top + LINE * row - 3
        name = series["legend"] if len(series["legend"]) <= fits else series["legend"][: fits - 1] + "…"
        box.text(10, y, "■", size=8, color=colour_of(panel, series["legend"], nth))
        box.text(24, y, name, size=7.5)
        values = [value for _, value in series["points"] if value is not None]
        for at, calc in enumerate(reversed(calcs)):
            text = written(CALCS[calc](values), unit_of(panel, series["legend"]))
            box.text(box.w - 8 - WIDE * at, y, text, ha="right", size=7.5)
    if len(found) > LEGEND:
        box.text(24, top + LINE * (LEGEND + 1) - 3, f"and {len(found) - LEGEND + 1} more", size=7.5, color=MUTED)
