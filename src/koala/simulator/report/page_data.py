"""The data of a simulation's page, in compact columns of numbers.

Nothing here draws; the script of the page does, see ``page.js``. ``koala.simulator.report.page_holds`` and
``koala.simulator.trace_run`` build it from a run's result.
"""

from __future__ import annotations

import base64
import dataclasses
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

# Stands for a time that never came.
NEVER = 2**32 - 1
# The page counts in whole units of time: the finest of these with which the run fits into 32 bits.
_UNITS_S = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
# Bounds between the classes of waits: about three for each factor of ten, at familiar times.
WAIT_EDGES_S = (1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10800, 36000, 86400, 259200, 864000, 2592000, 8640000)
WAIT_NAMES = (
    *("under 1 s", "1 - 3 s", "3 - 10 s", "10 - 30 s", "30 s - 1 min", "1 - 3 min", "3 - 10 min", "10 - 30 min"),
    *("30 min - 1 h", "1 - 3 h", "3 - 10 h", "10 h - 1 day", "1 - 3 days", "3 - 10 days", "10 - 30 days"),
    *("30 - 100 days", "over 100 days"),
)
LONGEST_WAITS = 10
# Types of columns: 8, 16 and 32 bits without a sign, and floating point for larger values.
_NARROW, _MIDDLE, _WIDE, _ANY = "B", "H", "I", "d"


class PageHold(NamedTuple):
    """Processors of one site that a job had: ``job`` and ``site`` are indices into the lists of both.

    >>> from koala.simulator import PageHold
    >>> PageHold(job=0, site=1, processors=16, from_s=0.0, to_s=60.0).processors
    16
    """

    job: int
    site: int
    processors: int
    from_s: float
    to_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPicture:
    """One run as the page shows it. Columns have one value for each job, in order of submission; None
    marks what never happened.

    ``holds`` says who had which processors when. ``facts`` summarise the run in a few numbers: (what, how much).
    """

    title: str
    subtitle: str
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()
    sites: Sequence[tuple[str, int]]
    ids: Sequence[int]
    sizes: Sequence[int]
    submit_s: Sequence[float]
    start_s: Sequence[float | None]
    end_s: Sequence[float | None]
    holds: Sequence[PageHold]
    start_unix_s: float | None = None


class WaitClass(NamedTuple):
    """How many jobs waited this long, as a share of all, and cumulative with all shorter waits."""

    name: str
    jobs: int
    share: float
    up_to: float
    bar: float


class LongWait(NamedTuple):
    """One of the jobs that waited longest; ``row`` is its index among the jobs."""

    row: int
    job: int
    size: int
    wait_s: float
    run_s: float | None


def waits_of(picture: RunPicture) -> list[float]:
    """Return the waits of the jobs that started."""
    return [
        start - submit for submit, start in zip(picture.submit_s, picture.start_s, strict=True) if start is not None
    ]


def wait_classes(waits_s: Sequence[float]) -> list[WaitClass]:
    """Return the distribution of waits, from the shortest class to the last that has a job."""
    counts = [0] * len(WAIT_NAMES)
    for wait_s in waits_s:
        counts[bisect_right(WAIT_EDGES_S, wait_s)] += 1
    while len(counts) > 1 and not counts[-1]:
        counts.pop()
    most, jobs, so_far = max(counts), len(waits_s) or 1, 0
    classes = []
    for name, count in zip(WAIT_NAMES, counts, strict=False):
        so_far += count
        classes.append(WaitClass(name, count, count / jobs, so_far / jobs, count / most if most else 0.0))
    return classes


def longest_waits(picture: RunPicture) -> list[LongWait]:
    """Return the jobs that waited longest, the longest first; ties by submission."""
    waits = (
        (start - submit, -row)
        for row, (submit, start) in enumerate(zip(picture.submit_s, picture.start_s, strict=True))
        if start is not None
    )
    found = []
    for wait_s, minus_row in nlargest(LONGEST_WAITS, waits):
        row = -minus_row
        start, end = picture.start_s[row], picture.end_s[row]
        run_s = None if start is None or end is None else end - start
        found.append(LongWait(row, picture.ids[row], picture.sizes[row], wait_s, run_s))
    return found


# --------------------------------------------------------------------------------------------- columns


def packed(picture: RunPicture) -> dict[str, Any]:
    """Return everything that the script needs, ready for JSON; times count from ``origin_s`` in units of
    ``unit_s``."""
    origin_s, last_s = _span(picture)
    unit_s = next((unit for unit in _UNITS_S if (last_s - origin_s) / unit < NEVER - 1), _UNITS_S[-1])

    def times(values: Iterable[float | None]) -> dict[str, str]:
        return _column(_WIDE, [NEVER if at is None else round((at - origin_s) / unit_s) for at in values])

    holds = picture.holds
    columns = {
        "size": _fitting(picture.sizes),
        "submit": times(picture.submit_s),
        "start": times(picture.start_s),
        "end": times(picture.end_s),
        "hold_site": _fitting([hold.site for hold in holds]),
        "hold_from": times(hold.from_s for hold in holds),
        "hold_to": times(min(hold.to_s, last_s) for hold in holds),
    }
    # Defaults are omitted: ids from 1 on, and one hold for each job with all of its processors and times.
    if list(picture.ids) != list(range(1, len(picture.ids) + 1)):
        columns["id"] = _fitting(picture.ids)
    if [hold.job for hold in holds] != list(range(len(picture.ids))):
        columns["hold_job"] = _fitting([hold.job for hold in holds])
        columns["hold_size"] = _fitting([hold.processors for hold in holds])
    elif columns["hold_from"] == columns["start"] and columns["hold_to"] == columns["end"]:
        del columns["hold_from"], columns["hold_to"]
    return {
        "origin_s": origin_s,
        "unit_s": unit_s,
        "start_unix_s": picture.start_unix_s,
        "sites": [{"name": name, "processors": processors} for name, processors in picture.sites],
        "wait_edges_s": WAIT_EDGES_S,
        "columns": columns,
    }


def _span(picture: RunPicture) -> tuple[float, float]:
    """Return the first submission and the last known moment."""
    known = [*picture.submit_s, *(end for end in picture.end_s if end is not None)]
    known += [start for start in picture.start_s if start is not None]
    known += [hold.to_s for hold in picture.holds if hold.to_s < float("inf")]
    return min(known, default=0.0), max(known, default=0.0)


def _fitting(values: Sequence[int]) -> dict[str, str]:
    """Return a column of whole numbers in the narrowest type that fits them all."""
    least, most = min(values, default=0), max(values, default=0)
    if least < 0 or most >= 2**32:
        return _column(_ANY, values)
    return _column(_NARROW if most < 2**8 else _MIDDLE if most < 2**16 else _WIDE, values)


def _column(kind: str, values: Iterable[int]) -> dict[str, str]:
    column = array(kind, values)
    if sys.byteorder == "big":
        column.byteswap()
    return {"bits": str(column.itemsize * 8), "data": base64.b64encode(column.tobytes()).decode("ascii")}
