"""The figures of a study: each metric by policy in every world, and the changes of the policies from the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from koala.study.comparison.findings import FIGURE_WORLDS_MAX, StudyFindings, World
from koala.study.comparison.runs import METRICS
from koala.study.frame.claims import decimals
from koala.study.frame.figures import ReportFigure, Style, new_grid, style_of
from koala.study.frame.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from koala.descriptions.study.form import StudyMetric

Panels = Mapping[str, Mapping[str, Interval]]

_COLUMNS = 2
# The height of a policy in a panel, and the height of the rest of the panel.
_ROW_INCHES = 0.3
_FRAME_INCHES = 0.85
# Room behind the longest bar, as a share of the axis, for its number; and beside the farthest dots.
_ROOM_BEHIND = 0.2
_ROOM_BESIDE = 0.05
_MINUS = "\N{MINUS SIGN}"
_WRITTEN: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8, "annotation_clip": False}


class StudyFigures:
    """The figures of the findings."""

    def __init__(self, findings: StudyFindings) -> None:
        self._findings = findings
        self._worlds = findings.worlds[:FIGURE_WORLDS_MAX]
        by_label = {each.label: each.policy.partition("(")[0] for each in findings.matrix.contenders}
        self._styles = {label: style_of(policy) for label, policy in by_label.items()}

    def figures(self) -> list[ReportFigure]:
        """Return for each metric its means, and its changes from the baseline if there are policies to compare."""
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
        return means(self._panels(findings.policies, partial(self._mean, metric)), label, self._styles)

    def _changes(self, metric: StudyMetric, label: str) -> Figure:
        findings = self._findings
        return changes(self._panels(findings.others, partial(self._change, metric)), label, self._styles)

    def _mean(self, metric: StudyMetric, who: str, world: World) -> Interval:
        return self._findings.interval(who, world, metric)

    def _change(self, metric: StudyMetric, who: str, world: World) -> Interval:
        return self._findings.change_percent(who, world, metric)

    def _panels(self, policies: Sequence[str], value: Callable[[str, World], Interval]) -> Panels:
        names = [self._findings.world_name(world) for world in self._worlds]
        worlds = zip(names, self._worlds, strict=True)
        return {name: {policy: value(policy, world) for policy in policies} for name, world in worlds}


def means(panels: Panels, label: str, styles: Mapping[str, Style]) -> Figure:
    """Return a bar for each policy in a panel for each world, all on one scale, each followed by its value."""
    figure, all_axes = _rows(panels, label)
    reach = max((_ends(each)[1] for each in _measured(panels)), default=0.0)
    for axes, values in zip(all_axes, panels.values(), strict=True):
        for place, (policy, interval) in enumerate(values.items()):
            if not interval.n:
                continue
            axes.barh(place, interval.mean, 0.62, color=styles[policy].colour)
            _error_bar(axes, place, interval, "#222222")
            axes.annotate(_text(interval), (_ends(interval)[1], place), xytext=(4, 0), **_WRITTEN)
        axes.set_xlim(0.0, reach * (1.0 + _ROOM_BEHIND) if reach > 0.0 else 1.0)
    return figure


def changes(panels: Panels, label: str, styles: Mapping[str, Style]) -> Figure:
    """Return a dot with its interval for each policy and a line at zero, in a panel for each world, all on one scale.
    The values are in a column beside the panel, where they cross nothing."""
    figure, all_axes = _rows(panels, label)
    ends = [0.0, *(end for each in _measured(panels) for end in _ends(each))]
    room = _ROOM_BESIDE * ((max(ends) - min(ends)) or 1.0)
    for axes, values in zip(all_axes, panels.values(), strict=True):
        axes.axvline(0.0, color="#222222", linewidth=1.0)
        for place, (policy, interval) in enumerate(values.items()):
            if not interval.n:
                continue
            style = styles[policy]
            axes.plot([interval.mean], [place], marker=style.marker, color=style.colour, linestyle="none")
            _error_bar(axes, place, interval, style.colour)
            beside = axes.get_yaxis_transform()
            axes.annotate(_text(interval), (1.0, place), xycoords=beside, xytext=(4, 0), **_WRITTEN)
        axes.set_xlim(min(ends) - room, max(ends) + room)
    return figure


def _rows(panels: Panels, label: str) -> tuple[Figure, list[Axes]]:
    """Return a panel for each world with a row for each policy, the first on top."""
    columns = min(_COLUMNS, len(panels))
    policies = list(next(iter(panels.values())))
    height = _FRAME_INCHES + _ROW_INCHES * len(policies)
    figure, all_axes = new_grid(len(panels), columns, height, shared_y=True)
    for number, (axes, title) in enumerate(zip(all_axes, panels, strict=True)):
        axes.set_ylim(len(policies) - 0.5, -0.5)
        axes.set_yticks(range(len(policies)), policies)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.set_title(title)
        if number + columns >= len(panels):
            axes.set_xlabel(label)
    return figure, all_axes


def _measured(panels: Panels) -> Iterator[Interval]:
    """Yield the intervals of all panels that have values."""
    return (each for values in panels.values() for each in values.values() if each.n)


def _ends(interval: Interval) -> tuple[float, float]:
    return (interval.low, interval.high) if interval.bounded else (interval.mean, interval.mean)


def _error_bar(axes: Axes, place: int, interval: Interval, colour: str) -> None:
    if interval.bounded:
        reach = [[interval.mean - interval.low], [interval.high - interval.mean]]
        axes.errorbar(interval.mean, place, xerr=reach, fmt="none", ecolor=colour, elinewidth=1.2, capsize=2.5)


def _text(interval: Interval) -> str:
    return f"{interval.mean:.{min(2, decimals(interval))}f}".replace("-", _MINUS)
