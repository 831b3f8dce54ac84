"""``UNFOLDING``: an array whose elements are made, one after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from heapq import nsmallest
from typing import ClassVar

from koala.core.encoded import encoded
from koala.core.life.phase import Phase
from koala.core.life.states import JobState
from koala.model.job_array import ArraySpec
from koala.model.messages import JobOutcome


@encoded
class Unfolding(Phase):
    """An array that makes its elements. Their outcome is kept in every phase of an array: ``Job.elements``."""

    state: ClassVar[JobState] = JobState.UNFOLDING


class _ElementsLinks:
    __slots__ = ("ahead", "live", "not_done_as", "not_made", "spec", "states")
    spec: ArraySpec
    states: dict[JobState, int]  # how many elements that have not ended are in each state
    not_done_as: Counter[str]  # how many of the elements that are not done ended with each outcome
    not_made: int  # how many of those come after the elements that were made
    live: int  # how many have not ended
    ahead: int  # how many of those wait for their first places


@encoded
class ArrayElements(_ElementsLinks):
    """The outcomes of the elements of an array."""

    made: int = 0
    started: int = 0
    not_done: dict[int, str] = field(default_factory=dict)  # by position, how it ended

    def bind(self, spec: ArraySpec) -> None:
        """Link it to the indices of the array; no element is counted yet."""
        self.spec = spec
        self.live = self.ahead = 0
        self.states = dict.fromkeys(JobState, 0)
        self.not_done_as = Counter(self.not_done.values())
        self.not_made = sum(position >= self.made for position in self.not_done)

    @property
    def running(self) -> int:
        """The number that run, or have run and have outputs collected."""
        return self.states[JobState.RUNNING] + self.states[JobState.COLLECTING]

    @property
    def to_come(self) -> int:
        """The number still to be made."""
        return self.spec.size - self.made - self.not_made

    @property
    def all_made(self) -> bool:
        """True if every element was made, or never will be."""
        return self.made >= self.spec.size

    @property
    def at_limit(self) -> bool:
        """True if the limit of live elements is reached."""
        return self.spec.limit is not None and self.live >= self.spec.limit

    def note_not_done(self, position: int, outcome: str) -> None:
        """Note the outcome of the element at this position, made or not."""
        self.not_done[position] = outcome
        self.not_done_as[outcome] += 1
        self.not_made += position >= self.made

    def failed(self, named_max: int) -> str:
        """Return the indices of the first failed elements, in words."""
        failed = (position for position, outcome in self.not_done.items() if outcome == JobOutcome.FAILED)
        first = [str(self.spec.index_at(position)) for position in nsmallest(named_max, failed)]
        more = self.not_done_as[str(JobOutcome.FAILED)] - len(first)
        named = f"{'index' if len(first) == 1 else 'indices'} {', '.join(first)}"
        return f"{named} and {more} more" if more else named

    def next(self) -> int | None:
        """Return the position of the next element, which counts as made from now on; None if none is to be made."""
        position = self.made
        self.made += 1
        if position in self.not_done:
            self.not_made -= 1
            return None
        return position
