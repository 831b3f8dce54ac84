"""The lists of jobs on the overview: an array is one line of a list, however many of its elements are in it.

Pure functions from the API's forms to lines; templates draw them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from koala.daemon.dashboard.words import places_of
from koala.model.api import JobDetail, JobSummary

QUEUE_LINES_MAX = 10


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or an array with ``elements`` of its elements in the list; ``where`` are their places."""

    job: JobSummary
    elements: int
    where: str


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A list of jobs with at most ``QUEUE_LINES_MAX`` lines; it ``leaves_out`` this many."""

    lines: tuple[QueueLine, ...]
    leaves_out: int

    @property
    def size(self) -> int:
        """The number of lines without the limit."""
        return len(self.lines) + self.leaves_out


def stands_for(job: JobSummary) -> int:
    """Return the number of the job, or of its array."""
    return job.id if job.array is None else job.array


def arrays_shown(lists: Sequence[Sequence[JobSummary]]) -> set[int]:
    """Return the arrays that have a line in one of the lists."""
    found: set[int] = set()
    for jobs in lists:
        first = list(dict.fromkeys((stands_for(each), each.array) for each in jobs))[:QUEUE_LINES_MAX]
        found.update(array for _, array in first if array is not None)
    return found


def queue(jobs: Sequence[JobSummary], arrays: Mapping[int, JobDetail]) -> Queue:
    """Return the lines of a list, in its order: an array is where the first of its elements is. An array that has
    gone since is shown by that element."""
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
