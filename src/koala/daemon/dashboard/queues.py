"""The lists of jobs on the overview: an array is one line of a list, however many of its elements are there.

Pure functions from the API's forms to lines; templates draw them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from koala.daemon.dashboard.words import places_of
from koala.model.api import JobDetail, JobSummary

QUEUE_LINES_MAX = 10


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or an array of which so many ``elements`` are in the list; ``where`` all of them are."""

    job: JobSummary
    elements: int
    where: str


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A list of jobs that is no longer than ``QUEUE_LINES_MAX``; it ``leaves_out`` so many lines."""

    lines: tuple[QueueLine, ...]
    leaves_out: int

    @property
    def size(self) -> int:
        """How many lines there would be."""
        return len(self.lines) + self.leaves_out


def stands_for(job: JobSummary) -> int:
    """The number of the job, or of the array that it is an element of."""
    return job.id if job.array is None else job.array


def arrays_shown(lists: Sequence[Sequence[JobSummary]]) -> set[int]:
    """The arrays that have a line in one of the lists."""
    found: set[int] = set()
    for jobs in lists:
        first = list(dict.fromkeys((stands_for(each), each.array) for each in jobs))[:QUEUE_LINES_MAX]
        found.update(array for _, array in first if array is not None)
    return found


def queue(jobs: Sequence[JobSummary], arrays: Mapping[int, JobDetail]) -> Queue:
    """The lines of a list, in its order: an array is where the first of its elements is. One that has gone since is
    shown by that element."""
    together: dict[int, list[JobSummary]] = {}
    for each in jobs:
        together.setdefault(stands_for(each), []).append(each)
    shown = list(together.items())[:QUEUE_LINES_MAX]
    return Queue(
        lines=tuple(_line(arrays.get(number), here) for number, here in shown), leaves_out=len(together) - len(shown)
    )


def _line(array: JobDetail | None, here: Sequence[JobSummary]) -> QueueLine:
    held = [place for each in here for place in each.places]
    if array is None:
        return QueueLine(job=here[0], elements=0, where=places_of(held))
    return QueueLine(job=array, elements=len(here), where=places_of(held))
