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
    """What has become of the elements is known in every phase of an array: ``Job.elements``."""

    state: ClassVar[JobState] = JobState.UNFOLDING


class _ElementsLinks:
    __slots__ = ("ahead", "live", "not_done_as", "not_made", "spec", "states")
    spec: ArraySpec
    states: dict[JobState, int]  # how many elements that have not ended are in each state
    not_done_as: Counter[str]  # how many of those that are not done ended so
    not_made: int  # of these: how many were to be made after those that were
    live: int  # how many have not ended
    ahead: int  # of these: how many wait for their first places


@encoded
class ArrayElements(_ElementsLinks):
    """What has become of the elements of an array."""

    made: int = 0
    started: int = 0
    not_done: dict[int, str] = field(default_factory=dict)  # by position how it ended

    def bind(self, spec: ArraySpec) -> None:
        """Tie it to the indices of the array; no element is counted yet."""
        self.spec = spec
        self.live = self.ahead = 0
        self.states = dict.fromkeys(JobState, 0)
        self.not_done_as = Counter(self.not_done.values())
        self.not_made = sum(position >= self.made for position in self.not_done)

    @property
    def running(self) -> int:
        """How many run, or have run and are collected from."""
        return self.states[JobState.RUNNING] + self.states[JobState.COLLECTING]

    @property
    def to_come(self) -> int:
        """How many are still to be made."""
        return self.spec.size - self.made - self.not_made

    @property
    def all_made(self) -> bool:
        """True if every element was made, or will not be."""
        return self.made >= self.spec.size

    @property
    def at_limit(self) -> bool:
        """True if as many live as may."""
        return self.spec.limit is not None and self.live >= self.spec.limit

    def note_not_done(self, position: int, outcome: str) -> None:
        """The element at this position has ended so, made or not."""
        self.not_done[position] = outcome
        self.not_done_as[outcome] += 1
        self.not_made += position >= self.made

    def failed(self, named_max: int) -> str:
        """The indices of the first elements that failed, in words."""
        failed = (position for position, outcome in self.not_done.items() if outcome == JobOutcome.FAILED)
        first = [str(self.spec.index_at(position)) for position in nsmallest(named_max, failed)]
        more = self.not_done_as[str(JobOutcome.FAILED)] - len(first)
        named = f"{'index' if len(first) == 1 else 'indices'} {', '.join(first)}"
        return f"{named} and {more} more" if more else named

    def next(self) -> int | None:
        """The position of the next element, which counts as made; None where it is not to be."""
        position = self.made
        self.made += 1
        if position in self.not_done:
            self.not_made -= 1
            return None
        return position
