"""The figures of a study: each metric by policy in every world, and how far the policies are from the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from koala.experiments.frame.claims import decimals
from koala.experiments.frame.figures import ReportFigure, Style, new_grid, style_of
from koala.experiments.frame.statistics import Interval
from koala.experiments.study.findings import FIGURE_WORLDS_MAX, StudyFindings, World
from koala.experiments.study.runs import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from koala.descriptions.study.form import StudyMetric

_COLUMNS = 2
# The height of a policy in a panel, and what a panel has besides.
_ROW_INCHES = 0.3
_FRAME_INCHES = 0.85
# Room behind the longest bar or interval, as a share of the axis, for the number written there.
_ROOM_BEHIND = 0.2


class StudyFigures:
    """The figures of the findings."""

    def __init__(self, findings: StudyFindings) -> None:
        self._findings = findings
        self._worlds = findings.worlds[:FIGURE_WORLDS_MAX]
        by_label = {each.label: each.policy.partition("(")[0] for each in findings.matrix.contenders}
        self._styles = {label: style_of(policy) for label, policy in by_label.items()}

    def figures(self) -> list[ReportFigure]:
        """For each metric its means, and its changes from the baseline where there are policies to compare."""
        findings = self._findings
        seeds = f"Means over {len(findings.seeds)} seeds with 95 % confidence intervals"
        found = []
        for metric in findings.matrix.metrics:
            words, unit = METRICS[metric]
            title = words[0].upper() + words[1:]
            label = f"{words} ({unit})" if unit else words
            name = str(metric).replace("_", "-")
            found.append(
                ReportFigure(name, title, f"{seeds}.{findings.figure_note()}", partial(self._means, metric, label))
            )
            if findings.others:
                base = findings.matrix.baseline
                caption = (
                    f"Paired differences from {base} under the same seeds, in percent of its mean, with 95 % "
                    "confidence intervals. One that crosses the line shows no difference."
                    f"{findings.figure_note()}"
                )
                found.append(
                    ReportFigure(
                        f"{name}-change",
                        f"{title}: change from {base}",
                        caption,
                        partial(self._changes, metric, f"change from {base} (%)"),
                    )
                )
        return found

    def _means(self, metric: StudyMetric, label: str) -> Figure:
        findings = self._findings
        return self._drawn(findings.policies, label, _bars, lambda who, world: findings.interval(who, world, metric))

    def _changes(self, metric: StudyMetric, label: str) -> Figure:
        findings = self._findings

        def change(who: str, world: World) -> Interval:
            return findings.change_percent(who, world, metric)

        return self._drawn(findings.others, label, _dots, change)

    def _drawn(
        self,
        policies: list[str],
        label: str,
        draw: Callable[[Axes, Mapping[str, Interval], Mapping[str, Style]], None],
        value: Callable[[str, World], Interval],
    ) -> Figure:
        """A panel for each world and in it a row for each policy, the first on top."""
        columns = min(_COLUMNS, len(self._worlds))
        figure, panels = new_grid(
            len(self._worlds), columns, _FRAME_INCHES + _ROW_INCHES * len(policies), shared_y=True
        )
        for number, (axes, world) in enumerate(zip(panels, self._worlds, strict=True)):
            draw(axes, {policy: value(policy, world) for policy in policies}, self._styles)
            axes.set_ylim(len(policies) - 0.5, -0.5)
            axes.set_yticks(range(len(policies)), policies)
            axes.tick_params(axis="y", length=0)
            axes.grid(visible=False, axis="y")
            axes.grid(visible=True, axis="x")
            axes.set_title(self._findings.world_name(world))
            if number + columns >= len(self._worlds):
                axes.set_xlabel(label)
        return figure


def _bars(axes: Axes, values: Mapping[str, Interval], styles: Mapping[str, Style]) -> None:
    reach = max((_ends(each)[1] for each in values.values() if each.n), default=0.0)
    for place, (policy, interval) in enumerate(values.items()):
        if not interval.n:
            continue
        axes.barh(place, interval.mean, 0.62, color=styles[policy].colour)
        _error_bar(axes, place, interval, "#222222")
        _number(axes, place, _ends(interval)[1], interval)
    axes.set_xlim(0.0, reach * (1.0 + _ROOM_BEHIND) if reach > 0.0 else 1.0)


def _dots(axes: Axes, values: Mapping[str, Interval], styles: Mapping[str, Style]) -> None:
    ends = [0.0, *(end for each in values.values() if each.n for end in _ends(each))]
    room = (max(ends) - min(ends)) or 1.0
    axes.axvline(0.0, color="#222222", linewidth=1.0)
    for place, (policy, interval) in enumerate(values.items()):
        if not interval.n:
            continue
        style = styles[policy]
        axes.plot([interval.mean], [place], marker=style.marker, color=style.colour, linestyle="none")
        _error_bar(axes, place, interval, style.colour)
        _number(axes, place, _ends(interval)[1], interval)
    axes.set_xlim(min(ends) - 0.05 * room, max(ends) + _ROOM_BEHIND * room)


def _ends(interval: Interval) -> tuple[float, float]:
    return (interval.low, interval.high) if interval.bounded else (interval.mean, interval.mean)


def _error_bar(axes: Axes, place: int, interval: Interval, colour: str) -> None:
    if interval.bounded:
        reach = [[interval.mean - interval.low], [interval.high - interval.mean]]
        axes.errorbar(interval.mean, place, xerr=reach, fmt="none", ecolor=colour, elinewidth=1.2, capsize=2.5)


def _number(axes: Axes, place: int, at: float, interval: Interval) -> None:
    text = f"{interval.mean:.{min(2, decimals(interval))}f}"
    axes.annotate(text, (at, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
