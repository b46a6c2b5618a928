"""What plots over time have in common: the axis, the marks of annotations, the series of an answer."""

from datetime import datetime, timezone

import numpy

from look import override, shade


def series_of(told):
    return [series for target in told["targets"] for series in target["series"]]


def unit_of(panel, name=""):
    return override(panel, name, "unit") or panel["fieldConfig"]["defaults"]["unit"]


def time_axis(axes, told):
    axes.set_xlim(told["start"], told["end"])
    ticks = numpy.linspace(told["start"], told["end"], 6)[1:-1]
    axes.set_xticks(ticks, [datetime.fromtimestamp(at, timezone.utc).strftime("%H:%M:%S") for at in ticks])
    axes.tick_params(length=0, labelsize=7)
    for name in ("top", "right", "left"):
        axes.spines[name].set_visible(False)


def marks(axes, told):
    """Annotations: a band from the first to the last point of each run."""
    for annotation in told["annotations"]:
        for series in annotation["series"]:
            times = [time for time, _ in series["points"]]
            for first, last in runs(times, annotation["step"]):
                colour = shade(annotation["color"])
                axes.axvline(first, color=colour, linewidth=0.8, linestyle=(0, (3, 2)), zorder=0.5)
                axes.axvspan(first, last, color=colour, alpha=0.08, linewidth=0, zorder=0.4)


def runs(times, step):
    """First and last of each row of points without a gap."""
    out = []
    for time in times:
        if out and time - out[-1][1] <= step:
            out[-1][1] = time
        else:
            out.append([time, time])
    return out
