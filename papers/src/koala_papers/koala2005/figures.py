"""The figures of the experiment of 2005: utilisation over time, and the effect of failures by number of
components."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from koala.simulator import WINDOW_S
from koala.study import NEUTRAL, Interval, ReportFigure, Series, legend, lines, mean_interval, new_figure
from koala_papers.koala2005.claims import UTILISATION_LEAST, UTILISATION_MOST
from koala_papers.koala2005.data import (
    COALLOCATED_SHARE,
    COMPONENTS,
    FAILURE_SHARE,
    GAINED_PROCESSOR_S,
    PLACEMENT_S,
    PRIORITIES,
    STABLE,
    START_DELAY_S,
    UNSTABLE,
    WASTED_PROCESSOR_S,
    JobFilter,
    Koala2005Data,
    Measure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HIGH, _LOW = NEUTRAL[1], NEUTRAL[0]
_PERCENT = 100.0
_PER_MINUTE = 1.0 / 60.0
_PER_HOUR = 1.0 / 3600.0
# A curve over time is drawn while at least this share of the runs continues.
_RUNS_SHARE_MIN = 0.5


def figures(data: Koala2005Data) -> list[ReportFigure]:
    """Return all pictures of the report, without those that have no measurements."""
    seeds = len(data.runs(UNSTABLE))
    bars = f"Means over {seeds} seeds with 95 % intervals."
    pictures = [
        _by_components(data, "failures", "Failures", FAILURE_SHARE, "failed runs (%)", _PERCENT, bars),
        _stability(data, bars),
        _by_components(
            data, "coallocation", "Jobs that use co-allocation", COALLOCATED_SHARE, "jobs on several clusters (%)",
            _PERCENT, bars,
        ),
        _by_components(data, "placement", "Placement times", PLACEMENT_S, "placement time (min)", _PER_MINUTE, bars),
        _by_components(data, "start-delay", "Start delays", START_DELAY_S, "start delay (min)", _PER_MINUTE, bars),
        _by_components(
            data, "gained", "Processor time gained between placement and claim", GAINED_PROCESSOR_S,
            "gained by a job (processor hours)", _PER_HOUR, bars,
        ),
        _by_components(
            data, "wasted", "Processor time wasted between claim and start", WASTED_PROCESSOR_S,
            "wasted by a job (processor hours)", _PER_HOUR, bars,
        ),
    ]  # fmt: skip
    curves = _curves(data, "total"), _curves(data, "others")
    if curves[0]:
        caption = (
            f"Share of the processors of clusters that were not taken out, in means of {WINDOW_S / 60:.0f} minutes: "
            f"mean and 95 % interval over {seeds} seeds for as long as half of the runs go on, and one of the runs. "
            "The shaded band is the 80-90 % of the paper."
        )
        pictures.insert(0, ReportFigure("utilisation", "Utilisation", caption, partial(_draw_use, data, *curves)))
    return [picture for picture in pictures if picture is not None]


# ------------------------------------------------------------------------------------- by components


def _series(data: Koala2005Data, system: str, measure: Measure, factor: float, size: int) -> list[Series]:
    series = []
    for priority, style in zip(PRIORITIES, (_HIGH, _LOW), strict=True):
        points: dict[float, Interval] = {}
        for components in COMPONENTS[size]:
            interval = data.interval(system, measure, JobFilter(priority, size, components))
            if interval is not None:
                points[components] = _scaled(interval, factor)
        if points:
            series.append(Series(f"{priority} priority", style, points))
    return series


def _scaled(interval: Interval, factor: float) -> Interval:
    return Interval(interval.mean * factor, interval.low * factor, interval.high * factor, interval.n)


def _by_components(
    data: Koala2005Data, name: str, title: str, measure: Measure, label: str, factor: float, bars: str
) -> ReportFigure | None:
    panels = {f"{size} processors": _series(data, UNSTABLE, measure, factor, size) for size in COMPONENTS}
    if not all(panels.values()):
        return None
    caption = f"By number of components, for jobs of 36 and of 72 processors on the unstable system. {bars}"
    return ReportFigure(name, title, caption, partial(lines, panels, "components", label))


def _stability(data: Koala2005Data, bars: str) -> ReportFigure | None:
    """Return failures on both systems."""
    series = []
    for system, style in ((UNSTABLE, NEUTRAL[1]), (STABLE, NEUTRAL[0])):
        points: dict[float, Interval] = {}
        for components in sorted({count for counts in COMPONENTS.values() for count in counts}):
            interval = data.interval(system, FAILURE_SHARE, JobFilter(components=components))
            if interval is not None:
                points[components] = _scaled(interval, _PERCENT)
        if points:
            series.append(Series(f"{system} system", style, points))
    if not series:
        return None
    caption = f"Failed runs of all jobs by number of components, on the unstable and on the stable system. {bars}"
    draw = partial(lines, {"": series}, "components", "failed runs (%)")
    return ReportFigure("stability", "Failures, stable and unstable", caption, draw)


# ------------------------------------------------------------------------------------------ over time


def _curves(data: Koala2005Data, name: str) -> list[Interval]:
    """Return one interval for each window, over the runs that still continue then."""
    runs = [run["use"][name] for run in data.runs(UNSTABLE).values()]
    curve: list[Interval] = []
    while True:
        still = [run[len(curve)] for run in runs if len(run) > len(curve)]
        if not still or len(still) < _RUNS_SHARE_MIN * len(runs):
            return curve
        curve.append(mean_interval(still))


def _draw_use(data: Koala2005Data, total: Sequence[Interval], others: Sequence[Interval]) -> Figure:
    figure, (axes,) = new_figure()
    first = next(iter(data.runs(UNSTABLE).values()))["use"]["total"]
    axes.axhspan(UTILISATION_LEAST * _PERCENT, UTILISATION_MOST * _PERCENT, color="#f0e442", alpha=0.35, linewidth=0)
    axes.plot(
        _minutes(len(first)),
        [share * _PERCENT for share in first],
        color="#b0b0b0",
        linewidth=0.9,
        label="one of the runs",
    )
    for curve, style, label in ((total, NEUTRAL[1], "our jobs and others"), (others, NEUTRAL[2], "others")):
        minutes = _minutes(len(curve))
        axes.plot(minutes, [each.mean * _PERCENT for each in curve], style.line, color=style.colour, label=label)
        if all(each.bounded for each in curve):
            low, high = ([getattr(each, end) * _PERCENT for each in curve] for end in ("low", "high"))
            axes.fill_between(minutes, low, high, color=style.colour, alpha=0.18, linewidth=0)
    axes.set_ylim(0, 100)
    axes.set_xlim(left=0)
    axes.set_xlabel("time since the first submission (min)")
    axes.set_ylabel("processors in use (%)")
    legend(figure, axes)
    return figure


def _minutes(windows: int) -> list[float]:
    """Return the middle of each window."""
    return [(number + 0.5) * WINDOW_S / 60.0 for number in range(windows)]
