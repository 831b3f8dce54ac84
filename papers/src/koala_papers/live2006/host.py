"""Disturbance of the machine under a measurement: the processor time that its host withheld meanwhile.

On a virtual machine the host may give processors to others. The kernel counts that as steal; a measurement with much
of it describes the host more than its subject, and is repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

STAT = Path("/proc/stat")
# At most this many attempts at a measurement; the least disturbed one counts.
TRIES_MAX = 3
# user, nice, system, idle, iowait, irq, softirq, steal; guests' time after that is part of the users'.
_STEAL, _FIELDS = 7, 8

Measured = TypeVar("Measured")


class Ticks(NamedTuple):
    """The time of all processors since the machine started, and the part of it that the host withheld."""

    all: int
    stolen: int


def ticks(path: Path = STAT) -> Ticks | None:
    """Return the kernel's counts; None if it has none."""
    try:
        words = path.read_text(encoding="ascii").split("\n", 1)[0].split()
        counts = [int(word) for word in words[1 : 1 + _FIELDS]]
    except (OSError, ValueError):
        return None
    return Ticks(sum(counts), counts[_STEAL]) if words[:1] == ["cpu"] and len(counts) == _FIELDS else None


def stolen_percent(before: Ticks | None, after: Ticks | None) -> float:
    """Return the withheld part of the time between; 0 if it is not counted."""
    if before is None or after is None or after.all <= before.all:
        return 0.0
    return 100.0 * (after.stolen - before.stolen) / (after.all - before.all)


class Undisturbed(NamedTuple, Generic[Measured]):
    """A measurement, the time withheld from it, and the number of attempts."""

    measured: Measured
    stolen_percent: float
    tries: int


async def undisturbed(
    measure: Callable[[], Awaitable[Measured]],
    percent_max: float,
    read: Callable[[], Ticks | None] = ticks,
) -> Undisturbed[Measured]:
    """Measure until no more than that was withheld, at most ``TRIES_MAX`` times."""
    least: Undisturbed[Measured] | None = None
    for tries in range(1, TRIES_MAX + 1):
        before = read()
        measured = await measure()
        percent = stolen_percent(before, read())
        if least is None or percent < least.stolen_percent:
            least = Undisturbed(measured, percent, tries)
        least = least._replace(tries=tries)
        if least.stolen_percent <= percent_max:
            break
    assert least is not None
    return least
