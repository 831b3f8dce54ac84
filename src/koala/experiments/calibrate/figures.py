"""The figures of the calibration: fitted against measured times, and times by clusters, measured and predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from koala.experiments.calibrate.das2 import ExecutionTimeModel
from koala.experiments.frame.figures import NEUTRAL, Series, error_bars, legend, lines, new_figure
from koala.experiments.frame.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# application, whether it is across clusters, and the least, fitted and median time in milliseconds
Point = tuple[str, bool, float, float, float]
# Where the logarithmic axes have ticks, as far as they reach.
_TICKS_MS = (1, 2, 5, 10, 20, 50, 100, 150, 200, 250, 300, 500, 1_000, 2_000, 5_000, 10_000)


def fit_figure(points: Sequence[Point]) -> Figure:
    """Two panels, runs on one cluster and across; both axes logarithmic, with the line where both are equal."""
    figure, all_axes = new_figure(2)
    applications = list(dict.fromkeys(point[0] for point in points))
    for axes, title, is_across in zip(all_axes, ("On one cluster", "Across clusters"), (False, True), strict=True):
        shown = [point for point in points if point[1] is is_across]
        for application, look in zip(applications, NEUTRAL, strict=False):
            own = [point for point in shown if point[0] == application]
            axes.hlines(
                [fitted_ms for *_, fitted_ms, _ in own],
                [least_ms for *_, least_ms, _, _ in own],
                [median_ms for *_, median_ms in own],
                color=look.colour,
                linewidth=1.0,
            )
            axes.plot(
                [least_ms for *_, least_ms, _, _ in own],
                [fitted_ms for *_, fitted_ms, _ in own],
                look.marker,
                color=look.colour,
                label=application.capitalize(),
            )
        ends = [time_ms for _, _, *times_ms in shown for time_ms in times_ms]
        line = [0.8 * min(ends), 1.25 * max(ends)]
        axes.plot(line, line, "-", color="#bbbbbb", linewidth=1.0, zorder=0)
        axes.set(xscale="log", yscale="log", title=title, xlabel="measured time (ms)")
        ticks = [tick for tick in _TICKS_MS if line[0] <= tick <= line[1]]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(ticks, [str(tick) for tick in ticks])
            axis.set_ticks([], minor=True)
        axes.set(xlim=line, ylim=line)
    all_axes[0].set_ylabel("fitted time (ms)")
    legend(figure, all_axes[0])
    return figure


def measured_figure(measured: Mapping[str, Mapping[int, Interval]]) -> Figure:
    """A line for each application."""
    series = [
        Series(application.capitalize(), look, dict(by_clusters))
        for (application, by_clusters), look in zip(measured.items(), NEUTRAL, strict=False)
    ]
    return lines({"": series}, "groups of the four processes", "time of an iteration (ms)")


def times_figure(
    table: Mapping[str, Mapping[int, Mapping[int, Interval]]], forms: Mapping[str, ExecutionTimeModel]
) -> Figure:
    """A panel for each application and a line for each size, with the form beside it."""
    figure, all_axes = new_figure(len(table), shared_y=True)
    sizes = sorted({size for by_size in table.values() for size in by_size})
    for axes, (application, by_size) in zip(all_axes, table.items(), strict=True):
        for size, by_clusters in by_size.items():
            look = NEUTRAL[sizes.index(size)]
            places = list(by_clusters)
            means = [by_clusters[clusters].mean for clusters in places]
            axes.plot(places, means, "-", color=look.colour, marker=look.marker, label=f"{size} processors")
            for clusters in places:
                error_bars(axes, clusters, by_clusters[clusters], ecolor=look.colour, elinewidth=1.1)
            form = [forms[application].seconds(size, clusters) for clusters in places]
            axes.plot(places, form, "--", color=look.colour, linewidth=1.0)
        axes.set(title=application.capitalize(), xlabel="clusters combined", xticks=places)
    all_axes[0].set_ylabel("execution time (s)")
    for axes in all_axes:
        axes.set_ylim(bottom=0)
    fullest = max(range(len(all_axes)), key=lambda index: len(list(table.values())[index]))
    legend(figure, all_axes[fullest])
    return figure
