"""Arrays: one submission that stands for many equal jobs, which differ by an index.

Frozen values, valid once built. The elements of the array with the number N are the jobs N + 1, N + 2, ... in the
order of their indices, so the number of each is known before it is made.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from functools import cached_property

import msgspec

# Limits on the elements of an array and on their indices.
ARRAY_ELEMENTS_MAX = 100_000
ARRAY_INDEX_MAX = 2**31 - 1
# An array is written with at most this many ranges.
ARRAY_RANGES_MAX = 1_000

ARRAY_ADVICE = "write indices and ranges in increasing order such as 0-99, 1,5,9 or 0-20:4, and %10 for ten at a time"
_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?")


class ArrayError(ValueError):
    """A text that is no array: the message says why, and ``advice`` what to write."""

    def __init__(self, problem: str, advice: str = ARRAY_ADVICE) -> None:
        super().__init__(problem)
        self.advice = advice


class ArraySpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """The indices of an array, as (first, last, step) in increasing order. ``limit`` is the largest number of
    elements that may be under way at the same time; None sets no limit."""

    ranges: tuple[tuple[int, int, int], ...]
    limit: int | None = None

    def __post_init__(self) -> None:
        if not self.ranges:
            raise ArrayError("an array has at least one element")
        if len(self.ranges) > ARRAY_RANGES_MAX:
            raise ArrayError(f"more than {ARRAY_RANGES_MAX} ranges (ARRAY_RANGES_MAX)")
        before = -1
        for first, last, step in self.ranges:
            if not (before < first <= last <= ARRAY_INDEX_MAX and step >= 1):
                raise ArrayError(f"the indices do not increase up to {ARRAY_INDEX_MAX} (ARRAY_INDEX_MAX)")
            before = last
        if self.size > ARRAY_ELEMENTS_MAX:
            raise ArrayError(
                f"{self.size} elements are too many", f"write at most {ARRAY_ELEMENTS_MAX} (ARRAY_ELEMENTS_MAX)"
            )
        if self.limit is not None and self.limit < 1:
            raise ArrayError("not even one element may run", "write %1 or more, or leave it out")

    @cached_property
    def size(self) -> int:
        """The number of elements."""
        return sum((last - first) // step + 1 for first, last, step in self.ranges)

    def index_at(self, position: int) -> int:
        """Return the index of the element at this position, counted from 0."""
        if not 0 <= position < self.size:
            raise IndexError(position)
        place = bisect_right(self._positions, position) - 1
        first, _, step = self.ranges[place]
        return first + (position - self._positions[place]) * step

    def position_of(self, index: int) -> int | None:
        """Return the position of the element with this index; None if there is none."""
        place = bisect_right(self.ranges, (index, ARRAY_INDEX_MAX + 1, 0)) - 1
        if place < 0:
            return None
        first, last, step = self.ranges[place]
        if index > last or (index - first) % step != 0:
            return None
        return self._positions[place] + (index - first) // step

    @cached_property
    def _positions(self) -> list[int]:
        """The position of the first element of each range."""
        sizes = [(last - first) // step + 1 for first, last, step in self.ranges]
        return [0, *itertools.accumulate(sizes[:-1])]

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        parts = [
            str(first) if first == last else f"{first}-{last}" + (f":{step}" if step > 1 else "")
            for first, last, step in self.ranges
        ]
        return ",".join(parts) + ("" if self.limit is None else f"%{self.limit}")


def read_array(text: str) -> ArraySpec:
    """Read an array as Slurm writes it: ``0-99``, ``1,3,5-9:2``, ``0-99%10``. Raises ArrayError."""
    indices, percent, limit_text = text.strip().partition("%")
    limit = None
    if percent:
        if not re.fullmatch(r"[0-9]{1,10}", limit_text.strip()):
            raise ArrayError(f"{limit_text[:40]!r} is not a number of elements at a time")
        limit = int(limit_text)
    parts = indices.split(",", ARRAY_RANGES_MAX)
    if len(parts) > ARRAY_RANGES_MAX:
        raise ArrayError(f"more than {ARRAY_RANGES_MAX} ranges (ARRAY_RANGES_MAX)")
    return ArraySpec(ranges=tuple(_read_range(part.strip()) for part in parts), limit=limit)


def _read_range(text: str) -> tuple[int, int, int]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ArrayError(f"{text[:40]!r} is neither an index nor a range")
    first = int(found[1])
    return first, int(found[2] or first), int(found[3] or 1)


def element_number(array: int, spec: ArraySpec, index: int) -> int | None:
    """Return the job number of the element with this index; None if there is none."""
    position = spec.position_of(index)
    return None if position is None else array + 1 + position


def element_name(name: str, index: int) -> str:
    """Return the name of an element in lists."""
    return f"{name}[{index}]"


def element_tail(name: str, index: int | None) -> str:
    """Return the end of a job's name that distinguishes it from other elements of its array: ``[59]``; empty for any
    other job."""
    tail = "" if index is None else element_name("", index)
    return tail if name.endswith(tail) else ""
