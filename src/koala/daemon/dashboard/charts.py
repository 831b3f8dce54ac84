"""A site's processors as pictures: their holders now as a bar, and their holders over time as a stacked area.

Pure functions from the API's forms to positions; templates draw them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec

from koala.daemon.dashboard.axis import Axis, AxisTick
from koala.model.api import LinkMeasurement, SiteHistory, SiteInfo, UsagePoint

CELLS_MAX = 48
STEPS_DRAWN_MAX = 500
AREA_WIDTH, AREA_HEIGHT = 1_000, 100
LINE_WIDTH, LINE_HEIGHT = 100, 20
LINE_VALUES_TOLD_MAX = 10
# The gap between cells, as a share of a cell, and its upper limit as a percentage of the bar.
_GAP_OF_CELL = 0.12
_GAP_PERCENT_MAX = 0.8


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a bar, in percent of its width."""

    kind: str
    left: float
    width: float


class ProcessorBar(msgspec.Struct, frozen=True, kw_only=True):
    """The holders of a site's processors. ``pieces`` are single processors if there are few, otherwise one for each
    kind."""

    shares: tuple[tuple[str, int], ...]
    pieces: tuple[Piece, ...]
    told: str


def processor_bar(site: SiteInfo) -> ProcessorBar:
    """Return the bar of a site now. Its kinds are, in this order: ours, others, earmarked, idle, kept (free but not
    for us: outside the quota, or the site is out of use)."""
    ours, others = _held(site)
    free = site.processors - ours - others
    earmarked = min(site.earmarked, free)
    idle = min(site.idle, free - earmarked)
    shares = [
        ("ours", ours),
        ("others", others),
        ("earmarked", earmarked),
        ("idle", idle),
        ("kept", free - earmarked - idle),
    ]
    total = sum(size for _, size in shares)
    words = ", ".join(f"{size} {_WORDS[kind]}" for kind, size in shares if size or kind in ("ours", "idle"))
    return ProcessorBar(
        shares=tuple(shares),
        pieces=tuple(_cells(shares, total) if 0 < total <= CELLS_MAX else _pieces(shares, total)),
        told=f"{words}, of {site.processors} processors",
    )


_WORDS = {"ours": "ours", "others": "others'", "earmarked": "earmarked", "idle": "idle", "kept": "not available"}


def _held(now: SiteInfo | UsagePoint) -> tuple[int, int]:
    """Return how many of its processors are ours, and how many of the rest are others'. The daemon's count and the
    site's last report are of different moments, so their sum may exceed the number of processors."""
    ours = min(max(0, now.ours), now.processors)
    return ours, min(max(0, now.others), now.processors - ours)


def _within(point: UsagePoint) -> UsagePoint:
    """Return the point with no more processors held than there are."""
    ours, others = _held(point)
    return msgspec.structs.replace(point, ours=ours, others=others)


def _cells(shares: Sequence[tuple[str, int]], total: int) -> list[Piece]:
    kinds = [kind for kind, size in shares for _ in range(size)]
    gap = min(_GAP_OF_CELL * 100.0 / total, _GAP_PERCENT_MAX)
    step = (100.0 + gap) / total
    return [
        Piece(kind=kind, left=round(number * step, 3), width=round(step - gap, 3))
        for number, kind in enumerate(kinds)
    ]


def _pieces(shares: Sequence[tuple[str, int]], total: int) -> list[Piece]:
    pieces = []
    before = 0
    for kind, size in shares:
        if size:
            left, right = 100.0 * before / total, 100.0 * (before + size) / total
            pieces.append(Piece(kind=kind, left=round(left, 3), width=round(right - left, 3)))
        before += size
    return pieces


class UsageChart(msgspec.Struct, frozen=True, kw_only=True):
    """A site's use over time: areas as SVG paths in a box of AREA_WIDTH by AREA_HEIGHT that may be stretched.

    ``top`` is the number of processors at its upper edge.
    """

    ours: str
    others: str
    capacity: str
    top: int
    ticks: tuple[AxisTick, ...]
    told: str


def usage_chart(history: SiteHistory, axis: Axis) -> UsageChart:
    """Return the areas from below: ours, then others'. The line above them is the site's capacity, which they never
    cross."""
    steps = [_within(each) for each in _thinned(_on_axis(history.points, axis), axis)]
    top = max((each.processors for each in steps), default=0)
    scale = AREA_HEIGHT / top if top else 0.0
    bounds = [_x(each.at, axis) for each in steps] + [float(AREA_WIDTH)]
    flat = [0.0] * len(steps)
    ours = [each.ours * scale for each in steps]
    both = [(each.ours + each.others) * scale for each in steps]
    return UsageChart(
        ours=_area(bounds, flat, ours),
        others=_area(bounds, ours, both),
        capacity=_line(bounds, [each.processors * scale for each in steps]),
        top=top,
        ticks=tuple(axis.ticks()),
        told=_told(steps, axis),
    )


class MeasuredLine(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive measurements as a line in a box of LINE_WIDTH by LINE_HEIGHT that begins at zero."""

    points: str
    told: str


def measured_line(measured: Sequence[LinkMeasurement], words: Callable[[float], str]) -> MeasuredLine | None:
    """Return the line of a link's measurements, the oldest first; None if there are too few to compare."""
    if len(measured) < 2:
        return None
    top = max(each.value for each in measured) or 1.0
    step = LINE_WIDTH / (len(measured) - 1)
    points = (
        f"{place * step:.1f},{LINE_HEIGHT - 1 - (LINE_HEIGHT - 2) * each.value / top:.1f}"
        for place, each in enumerate(measured)
    )
    values = ", ".join(words(each.value) for each in measured[-LINE_VALUES_TOLD_MAX:])
    more = "…, " if len(measured) > LINE_VALUES_TOLD_MAX else ""
    return MeasuredLine(
        points=" ".join(points), told=f"{len(measured)} measurements, the newest at the end: {more}{values}"
    )


def _told(steps: Sequence[UsagePoint], axis: Axis) -> str:
    if not steps:
        return "nothing is known of this stretch of time"
    spans = [after.at - before.at for before, after in itertools.pairwise(steps)]
    spans.append(max(0.0, axis.to_at - steps[-1].at))
    whole_s = sum(spans) or 1.0
    ours = sum(step.ours * span for step, span in zip(steps, spans, strict=True)) / whole_s
    others = sum(step.others * span for step, span in zip(steps, spans, strict=True)) / whole_s
    return (
        f"on average {ours:.1f} ours and {others:.1f} others'; "
        f"now {steps[-1].ours} ours and {steps[-1].others} others' of {steps[-1].processors}"
    )


def _on_axis(points: Sequence[UsagePoint], axis: Axis) -> list[UsagePoint]:
    """Return the points inside the axis, with the point that holds at its beginning moved there."""
    ordered = sorted(points, key=lambda each: each.at)
    before = [each for each in ordered if each.at <= axis.from_at]
    inside = [each for each in ordered if axis.from_at < each.at <= axis.to_at]
    if before:
        return [msgspec.structs.replace(before[-1], at=axis.from_at), *inside]
    return inside


def _thinned(points: Sequence[UsagePoint], axis: Axis) -> list[UsagePoint]:
    """Return at most one point, the last, for each of STEPS_DRAWN_MAX equal intervals."""
    newest: dict[int, UsagePoint] = {}
    for point in points:
        newest[min(STEPS_DRAWN_MAX - 1, int((point.at - axis.from_at) / axis.length_s * STEPS_DRAWN_MAX))] = point
    return list(newest.values())


def _x(at: float, axis: Axis) -> float:
    return round(axis.percent(at) * AREA_WIDTH / 100, 1)


def _y(height: float) -> str:
    return f"{round(max(0.0, AREA_HEIGHT - height), 2):g}"


def _area(bounds: Sequence[float], low: Sequence[float], high: Sequence[float]) -> str:
    """Return a closed path between two step functions; empty if it has no height anywhere."""
    if all(top <= bottom for bottom, top in zip(low, high, strict=True)):
        return ""
    path = [f"M{bounds[0]:g} {_y(low[0])}"]
    for left, right, top in zip(bounds, bounds[1:], high, strict=False):
        path.append(f"L{left:g} {_y(top)}H{right:g}")
    for left, right, bottom in reversed(list(zip(bounds, bounds[1:], low, strict=False))):
        path.append(f"L{right:g} {_y(bottom)}H{left:g}")
    return "".join(path) + "Z"


def _line(bounds: Sequence[float], height: Sequence[float]) -> str:
    parts = [
        f"{'L' if number else 'M'}{left:g} {_y(top)}H{right:g}"
        for number, (left, right, top) in enumerate(zip(bounds, bounds[1:], height, strict=False))
    ]
    return "".join(parts)
