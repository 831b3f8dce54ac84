"""The figures 3 to 11 of the paper on WASE, drawn from the new results, and Table 2.

This module also defines the looks of the methods in every figure; ``beyond_figures`` has the figures on extensions of
the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from koala.study import NEUTRAL, Interval, ReportFigure, Series, Style, error_bars, legend, new_figure
from koala_papers.wase.claims import BANDS_IN_WORDS, band_in_words, near_home
from koala_papers.wase.data import WaseData
from koala_papers.wase.pipeline import CLUSTERS, LAN_NAMES, MCRS, PAPER_AFFINITY, PAPER_TASKS
from koala_papers.wase.trials import ALL, FAR, GREEDY, GREEDY_SCAN, SOFT, WASE, WHOLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from koala_papers.wase.data import Column

STYLES = {
    WASE: Style("#0072b2", "o"),
    GREEDY: Style("#d55e00", "s", "--"),
    GREEDY_SCAN: Style("#d55e00", "s"),
    WHOLE: Style("#009e73", "^"),
    FAR: Style("#cc79a7", "D"),
    SOFT: Style("#e69f00", "v"),
    ALL: Style("#332288", "P"),
}
# From near to far: from dark to light.
DISTANCES = {
    "tasks_at_home": ("suitable LAN", "#08519c"),
    "tasks_in_man": ("same MAN", "#4292c6"),
    "tasks_in_wan": ("same WAN", "#9ecae1"),
    "tasks_beyond": ("beyond", "#deebf7"),
}
LAN_COLOURS = ("#08519c", "#e69f00", "#009e73")
# Sizes of LANs or graphs are no methods, so they have colours of their own from light to dark.
_ORDERED = (
    Style("#fdae6b", "o"),
    Style("#f16913", "s"),
    Style("#a63603", "^"),
    Style("#7a0177", "D"),
    Style("#1a1a1a", "v"),
)
TASKS_LABEL = "tasks of the application"
FAILURES_LABEL = "failures (% of trials)"
HIT_LABEL = "LAN hit ratio (%)"


def figures(data: WaseData, others: Sequence[WaseData] = ()) -> list[ReportFigure]:
    """Return all figures, in the order of the paper; ``others`` has the other readings of cluster sizes."""
    seeds = f"Means over {len(data.seeds)} seeds with 95 % confidence intervals."
    return [*_of_the_paper((data, *others), seeds), _table_2(data)]


def category_lines(
    panels: Mapping[str, Sequence[Series]],
    texts: Sequence[str],
    xlabel: str,
    ylabel: str,
    *,
    y_range: tuple[float, float | None] = (0.0, None),
    logarithmic: bool = False,
) -> Figure:
    """Return lines with error bars over named places, in a panel for each title, on one scale.

    Even spacing suits values that double. A logarithmic axis takes its range from the data.
    """
    figure, all_axes = new_figure(len(panels), shared_y=True)
    for axes, (title, series) in zip(all_axes, panels.items(), strict=True):
        for each in series:
            places = sorted(each.points)
            look = each.style
            means = [each.points[place].mean for place in places]
            axes.plot(places, means, look.line, color=look.colour, marker=look.marker, label=each.label)
            for place in places:
                error_bars(axes, place, each.points[place], ecolor=look.colour, elinewidth=1.1)
        axes.set_xticks(range(len(texts)), texts)
        axes.set_xlim(-0.3, len(texts) - 0.7)
        if title:
            axes.set_title(title)
        axes.set_xlabel(xlabel)
    if logarithmic:
        _set_logarithmic(all_axes[0])
    else:
        all_axes[0].set_ylim(*y_range)
    all_axes[0].set_ylabel(ylabel)
    legend(figure, max(all_axes, key=lambda axes: len(axes.get_lines())))
    return figure


def _set_logarithmic(axes: Axes) -> None:
    """Set a logarithmic scale with plain numbers: 0.1, 0.2, 0.5, 1 and so on."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def over(data: WaseData, axis: str, places: Sequence[float], values: Column, **fixed: float) -> dict[int, Interval]:
    """Return by number of the place on an axis the mean of the values there; places without any are left out."""
    found = {
        number: data.interval(values, data.where(**{axis: place, **fixed})) for number, place in enumerate(places)
    }
    return {number: interval for number, interval in found.items() if interval is not None}


def by_tasks(data: WaseData, label: str, style: Style, values: Column, **fixed: float) -> Series:
    return Series(label, style, over(data, "tasks", data.parameters.tasks, values, **fixed))


def texts_of(places: Sequence[float]) -> list[str]:
    return [f"{place:g}" for place in places]


# ------------------------------------------------------------------------------------ the paper's figures


def _of_the_paper(readings: Sequence[WaseData], seeds: str) -> list[ReportFigure]:
    data = readings[0]
    return [
        _failures_by_tasks(data, seeds),
        _failures_by_clusters(readings, seeds),
        _failures_compared(data, seeds),
        _times(data, seeds),
        _times_compared(data, seeds),
        _distances(readings, seeds),
        _hits(data, seeds, WASE, "figure-09", "Figure 9. LAN hit ratio, WASE"),
        _hits(data, seeds, GREEDY, "figure-10", "Figure 10. LAN hit ratio, greedy"),
        _affinity(data, seeds),
    ]


def _by_lan_size(data: WaseData, values: Column) -> list[Series]:
    sizes = data.parameters.machines_per_lan
    return [
        by_tasks(data, f"LANs of {size}", _ORDERED[number % len(_ORDERED)], values, machines_per_lan=size)
        for number, size in enumerate(sizes)
    ]


def _failures_by_tasks(data: WaseData, seeds: str) -> ReportFigure:
    return ReportFigure(
        "figure-03",
        "Figure 3. Failures by tasks",
        f"Share of the trials in which WASE finds no mapping, by the size of the LANs. {seeds}",
        partial(
            category_lines,
            {"": _by_lan_size(data, 100.0 * data.failed(WASE))},
            texts_of(data.parameters.tasks),
            TASKS_LABEL,
            FAILURES_LABEL,
        ),
    )


def _failures_by_clusters(readings: Sequence[WaseData], seeds: str) -> ReportFigure:
    places = range(len(readings[0].parameters.cluster_sizes))
    panels = {
        _as_title(data): [
            Series(
                f"{tasks} tasks",
                _ORDERED[number % len(_ORDERED)],
                over(data, "cluster_size", places, 100.0 * data.failed(WASE), tasks=tasks),
            )
            for number, tasks in enumerate(data.parameters.tasks)
        ]
        for data in readings
    }
    return ReportFigure(
        "figure-04",
        "Figure 4. Failures by size of clusters",
        f"WASE, by the tasks in a cluster. {seeds}",
        partial(
            category_lines,
            panels,
            [band_in_words(readings[0], place) for place in places],
            "tasks in a cluster",
            FAILURES_LABEL,
        ),
    )


def _as_title(data: WaseData) -> str:
    """Return the reading of the ranges of cluster sizes, for the title of a panel."""
    return BANDS_IN_WORDS[data.bands]


def _failures_compared(data: WaseData, seeds: str) -> ReportFigure:
    series = [
        by_tasks(data, "WASE", STYLES[WASE], 100.0 * data.failed(WASE)),
        by_tasks(data, "greedy", STYLES[GREEDY], 100.0 * data.failed(GREEDY)),
        by_tasks(data, "no mapping exists", NEUTRAL[2], 100.0 * data.impossible),
    ]
    alike = bool((data.failed(GREEDY) == data.impossible).all())
    more = ", which are those where greedy fails: the two lines lie on each other" if alike else ""
    return ReportFigure(
        "figure-05",
        "Figure 5. Failures of WASE and greedy",
        f"And the share of trials in which it is certain that no mapping exists{more}. {seeds}",
        partial(category_lines, {"": series}, texts_of(data.parameters.tasks), TASKS_LABEL, FAILURES_LABEL),
    )


def _times(data: WaseData, seeds: str) -> ReportFigure:
    return ReportFigure(
        "figure-06",
        "Figure 6. Scheduling time of WASE",
        f"Time of the processor without clustering, of the mappings found. {seeds}",
        partial(
            category_lines,
            {"": _by_lan_size(data, 1000.0 * data.column(WASE, "cpu_s"))},
            texts_of(data.parameters.tasks),
            TASKS_LABEL,
            "scheduling time (ms)",
        ),
    )


def _times_compared(data: WaseData, seeds: str) -> ReportFigure:
    names = {WASE: "WASE", GREEDY_SCAN: "greedy, through the queue", GREEDY: "greedy, by halving"}
    machines = data.parameters.machines
    panels = {
        f"{size} machines": [
            by_tasks(data, name, STYLES[method], 1000.0 * data.column(method, "cpu_s"), machines=size)
            for method, name in names.items()
        ]
        for size in (machines[0], machines[-1])
    }
    return ReportFigure(
        "figure-07",
        "Figure 7. Scheduling times of WASE and greedy",
        "Greedy as the paper has it, looking at every machine for every task, and the same by halving in a sorted "
        f"queue. {seeds}",
        partial(
            category_lines,
            panels,
            texts_of(data.parameters.tasks),
            TASKS_LABEL,
            "scheduling time (ms)",
            logarithmic=True,
        ),
    )


def _distances(readings: Sequence[WaseData], seeds: str) -> ReportFigure:
    parameters = readings[0].parameters
    least = min(parameters.machines_per_lan)
    panels: dict[str, dict[str, dict[int, Interval]]] = {}
    said = []
    for data in readings:
        panels[_as_title(data)] = {
            name: over(data, "tasks", parameters.tasks, 100.0 * data.column(WASE, name), machines_per_lan=least)
            for name in DISTANCES
        }
        near = data.interval(near_home(data, WASE), data.where(machines_per_lan=least))
        if near is not None:
            said.append(f"{near.mean:.1f} % with ranges as {_as_title(data)}")
    return ReportFigure(
        "figure-08",
        f"Figure 8. Where WASE puts the tasks of a cluster, LANs of {least}",
        "Distance from the LAN that was suitable for the cluster. Of the tasks there are in that LAN or its MAN: "
        f"{', '.join(said) or 'none'}. {seeds.split(' with')[0]}.",
        partial(_stacked, panels, texts_of(parameters.tasks)),
    )


def _stacked(panels: dict[str, dict[str, dict[int, Interval]]], texts: Sequence[str]) -> Figure:
    """Return bars of all distances that occur; a grid of one WAN has nothing beyond."""
    there = {
        name
        for shares in panels.values()
        for name, points in shares.items()
        if any(interval.mean > 0 for interval in points.values())
    }
    figure, all_axes = new_figure(len(panels), shared_y=True)
    for axes, (title, shares) in zip(all_axes, panels.items(), strict=True):
        below = [0.0] * len(texts)
        for name, (label, colour) in DISTANCES.items():
            if name not in there:
                continue
            heights = [shares[name][place].mean if place in shares[name] else 0.0 for place in range(len(texts))]
            axes.bar(range(len(texts)), heights, 0.62, bottom=below, color=colour, label=label)
            below = [base + height for base, height in zip(below, heights, strict=True)]
        axes.set_xticks(range(len(texts)), texts)
        axes.set_title(title)
        axes.set_xlabel(TASKS_LABEL)
    all_axes[0].set_ylabel("tasks (%)")
    all_axes[0].set_ylim(0, 100)
    legend(figure, all_axes[0])
    return figure


def _hits(data: WaseData, seeds: str, method: str, name: str, title: str) -> ReportFigure:
    panels = {
        "over clusters": _by_lan_size(data, 100.0 * data.column(method, "lan_hit")),
        "over tasks": _by_lan_size(data, 100.0 * data.column(method, "tasks_at_home")),
    }
    texts = texts_of(data.parameters.tasks)
    return ReportFigure(
        name,
        title,
        "Share of a cluster's tasks in its LAN, as a mean over clusters, where a task alone counts as a hit, and "
        f"over tasks. {seeds}",
        partial(category_lines, panels, texts, TASKS_LABEL, HIT_LABEL, y_range=(0.0, 103.0)),
    )


def _affinity(data: WaseData, seeds: str) -> ReportFigure:
    sizes = data.parameters.machines
    shown = {"WASE": WASE, "wase-far": FAR} if data.parameters.beyond else {"WASE": WASE}
    more = "; and the same for the search that looks at far LANs" if data.parameters.beyond else ""
    panels = {
        title: [
            Series(
                f"{tasks} tasks",
                _ORDERED[number % len(_ORDERED)],
                over(data, "machines", sizes, _light(data, method), tasks=tasks),
            )
            for number, tasks in enumerate(data.parameters.tasks)
        ]
        for title, method in shown.items()
    }
    return ReportFigure(
        "figure-11",
        "Figure 11. Minimum affinity by size of the grid",
        f"At an MCR of {min(data.parameters.mcr):g}, with which most applications are mapped on all "
        f"grids{more}. {seeds}",
        partial(
            category_lines, panels, texts_of(sizes), "machines of the grid", "minimum affinity", y_range=(0.9, None)
        ),
    )


def _light(data: WaseData, method: str) -> Column:
    """Return the minimum affinity for small requirements, nothing elsewhere."""
    import numpy

    return numpy.where(data.where(mcr=min(data.parameters.mcr)), data.column(method, "affinity_min"), numpy.nan)


def _table_2(data: WaseData) -> ReportFigure:
    return ReportFigure(
        "table-2",
        "Table 2. The render-encode pipeline on its testbed",
        "Where the 14 tasks go, here and in the paper, and their mean affinity, written above. What tasks need and "
        "exchange and the LANs' members are assumed; tables.md has all numbers.",
        partial(_pipeline_bars, data.pipeline["rows"]),
    )


def _pipeline_bars(rows: list[dict[str, Any]]) -> Figure:
    figure, all_axes = new_figure(len(CLUSTERS), shared_y=True)
    for axes, clusters in zip(all_axes, CLUSTERS, strict=True):
        for place, mcr in enumerate(MCRS):
            (row,) = (row for row in rows if (row["wanted"], row["mcr"]) == (clusters, mcr))
            ours = ([0, 0, 0], "none") if row["failed"] else (row["tasks"], f"{row['affinity']:.1f}")
            paper = (PAPER_TASKS[clusters, mcr], f"{PAPER_AFFINITY[clusters, mcr]:.1f}")
            for shift, (tasks, text), hatch in ((-0.2, ours, ""), (0.2, paper, "///")):
                base = 0
                for lan, count in enumerate(tasks):
                    axes.bar(
                        place + shift,
                        count,
                        0.36,
                        bottom=base,
                        color=LAN_COLOURS[lan],
                        hatch=hatch,
                        edgecolor="white",
                    )
                    base += count
                axes.annotate(
                    text, (place + shift, base), (0, 3), textcoords="offset points", ha="center", fontsize=7
                )
        axes.set_xticks(range(len(MCRS)), [f"{mcr:g}" for mcr in MCRS])
        axes.set_title(f"{clusters} clusters")
        axes.set_xlabel("MCR (MFlop/s)")
        axes.set_ylim(0, 16.5)
    all_axes[0].set_ylabel("tasks")
    for lan, colour in enumerate(LAN_COLOURS):
        all_axes[0].bar(0, 0, color=colour, label=LAN_NAMES[lan])
    all_axes[0].bar(0, 0, color="#999999", hatch="///", edgecolor="white", label="the paper's")
    legend(figure, all_axes[0])
    return figure
