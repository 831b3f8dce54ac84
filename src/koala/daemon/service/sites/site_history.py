"""Who held a site's processors over a period, as steps, derived from the store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from koala.model.api import UsagePoint
from koala.model.errors import InvalidError
from koala.model.messages import SiteReported
from koala.store.rows import JournalRow

# The longest period that one call may cover.
HISTORY_S_MAX = 31 * 86_400.0
# At most this many steps are returned; steps in between are left out.
HISTORY_POINTS_MAX = 2_000


def check_stretch(from_at: float, to_at: float) -> None:
    """Raise ``InvalidError`` unless these are two times in order, not too far apart."""
    if not (math.isfinite(from_at) and math.isfinite(to_at) and from_at < to_at):
        raise InvalidError("from_at, to_at: name two times in seconds since 1970, the earlier one first")
    if to_at - from_at > HISTORY_S_MAX:
        raise InvalidError(
            f"from_at, to_at: they are more than {HISTORY_S_MAX:.0f} s apart (HISTORY_S_MAX); ask for a shorter time"
        )


def usage_points(
    held: Iterable[tuple[float, int]],
    reports: Iterable[JournalRow],
    *,
    processors: int,
    from_at: float,
    to_at: float,
) -> list[UsagePoint]:
    """Return the steps between two times, the first at ``from_at``. ``held`` has the times at which our components
    took or gave back processors, and how many; ``processors`` holds until the site's first report."""
    changes: list[tuple[float, int, tuple[int, int] | None]] = [(at, more, None) for at, more in held]
    bodies = ((entry.at, entry.body) for entry in reports)
    changes += [(at, 0, (body.processors, body.others)) for at, body in bodies if isinstance(body, SiteReported)]
    changes.sort(key=lambda change: change[0])
    ours, others = 0, 0
    points = [UsagePoint(at=from_at, processors=processors, ours=0, others=0)]
    for at, more, report in changes:
        if at > to_at:
            break
        ours += more
        if report is not None:
            processors, others = report
        point = UsagePoint(at=max(at, from_at), processors=processors, ours=ours, others=others)
        if point.at == points[-1].at:
            points.pop()
        if not points or _use(point) != _use(points[-1]):
            points.append(point)
    return _thinned(points, from_at, to_at)


def _use(point: UsagePoint) -> tuple[int, int, int]:
    return point.processors, point.ours, point.others


def _thinned(points: Sequence[UsagePoint], from_at: float, to_at: float) -> list[UsagePoint]:
    """Return the first point and the last one of each of equal intervals, if there are too many."""
    if len(points) <= HISTORY_POINTS_MAX:
        return list(points)
    stretches = HISTORY_POINTS_MAX - 1
    last: dict[int, UsagePoint] = {}
    for point in points[1:]:
        last[min(stretches - 1, int((point.at - from_at) / (to_at - from_at) * stretches))] = point
    return [points[0], *last.values()]
