"""The places of jobs in a placement queue: what each order keeps so that nobody has to sort a long queue.

A job has a *rank* in its queue, and a *key* in its group; see ``koala.core.state.queues.groups``. In first come,
first served both are its position. In any other order a job with a plan comes before all jobs without one, as no
later job may put a plan off.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from koala.core.encoded import INFINITY, encoded
from koala.core.life.job import Job
from koala.core.state.queues.groups import DemandGroup, SharedGroup
from koala.model.request import JobId
from koala.policies.interface import Demand

# Ranks of jobs with plans, of jobs that have waited too long, and of all others begin with these.
PLANNED, OVERDUE, IN_ORDER = 0, 1, 2
# The number of a job that has come since the last full order was requested.
LATEST = 1 << 60
# Entries of users that do not wait any more are dropped when they outnumber the others by this many.
TURNS_SLACK = 64


@encoded
class Turns:
    """The turns of a user since the queue was empty.

    They are a number in a row and, by position, the turns of jobs placed while an earlier job of the user waits.
    """

    taken: int = 0
    early: list[int] = field(default_factory=list)


class FirstCome:
    """First come, first served: the rank of a job is its position."""

    bottom: Any = -1  # a rank before all jobs
    top: Any = INFINITY  # a rank after all jobs
    by_user = False  # True if users take turns
    moves = False  # True if a job may move while it waits
    asked = False  # True if a function gives the order

    def group(self, demand: Demand, *, timed: bool) -> DemandGroup:
        """Return a new group of jobs with this demand."""
        return DemandGroup(demand.key, demand, timed=timed)

    def moved_up(self) -> list[str]:
        """Return the users whose jobs have moved up since the last call."""
        return []

    def joins(self, job: Job) -> Any:
        """Put the job in line; return its key."""
        return job.position

    def leaves(self, job: Job, *, placed: bool) -> None:
        """Take the job out of the line."""

    def key_of(self, job: Job) -> Any:
        """Return the key of a job in line."""
        return job.position

    def rank_of(self, job: Job) -> Any:
        """Return the rank of a job in line, or of a job as if it came now."""
        return job.position

    def passes(self, job: Job, position: int) -> None:
        """Note that a job was placed without standing in line."""

    def restores(self, jobs: Iterable[Job]) -> None:
        """Prepare for these jobs, which stood in line before a restart and will join one after the other."""

    def moved(self, job: Job) -> Any:
        """Return the new key of a job that got or lost a plan, has waited too long, or has a new demand."""
        return job.position

    def grow_overdue(self, now: float) -> list[Job]:
        """Return the jobs that have waited too long since the last call."""
        return []

    def before(self, job: Job, groups: Iterable[DemandGroup]) -> int:
        """Return how many jobs in line stand before it."""
        rank = self.rank_of(job)
        return sum(bisect_left(group.keys, rank) for group in groups)

    def elements_before(self, array: Job, to_come: int, job: Job) -> int:
        """Return how many elements that are no jobs yet stand before a waiting job."""
        return to_come if 0 <= array.arrival + array.elements.made < job.position else 0


class _Ordered(FirstCome):
    """An order other than first come, first served. A job that has waited for ``patience_s`` comes first."""

    bottom: Any = ()
    top: Any = (IN_ORDER + 1,)
    moves = True

    def __init__(self, overdue: dict[JobId, None], patience_s: float = INFINITY) -> None:
        self._keys: dict[JobId, Any] = {}
        self._patience_s = patience_s
        # (since when it waits, position, job), for jobs that are not overdue: entries of jobs that left are skipped.
        self._waits: list[tuple[float, int, Job]] = []
        self._overdue = overdue

    def joins(self, job: Job) -> Any:
        if self._patience_s < INFINITY and job.id not in self._overdue:
            heapq.heappush(self._waits, (job.waiting_since, job.position, job))
        key = self._keys[job.id] = self.rank_of(job)
        return key

    def leaves(self, job: Job, *, placed: bool) -> None:
        del self._keys[job.id]
        self._overdue.pop(job.id, None)

    def key_of(self, job: Job) -> Any:
        return self._keys[job.id]

    def rank_of(self, job: Job) -> Any:
        if job.plan_at is not None:
            return PLANNED, job.position
        return (OVERDUE, job.position) if job.id in self._overdue else self._rank_in_order(job)

    def _rank_in_order(self, job: Job) -> Any:
        raise NotImplementedError

    def moved(self, job: Job) -> Any:
        key = self._keys[job.id] = self.rank_of(job)
        return key

    def grow_overdue(self, now: float) -> list[Job]:
        found = []
        while self._waits and self._waits[0][0] + self._patience_s <= now:
            since, _, job = heapq.heappop(self._waits)
            if job.id in self._keys and job.waiting_since == since and job.id not in self._overdue:
                self._overdue[job.id] = None
                found.append(job)
        return found


class ShortestFirst(_Ordered):
    """The shortest job first, by the run times that plans believe."""

    def __init__(self, planned_s: Callable[[Job], float], overdue: dict[JobId, None], patience_s: float) -> None:
        super().__init__(overdue, patience_s)
        self._planned_s = planned_s

    def _rank_in_order(self, job: Job) -> Any:
        return IN_ORDER, self._planned_s(job), job.position

    def elements_before(self, array: Job, to_come: int, job: Job) -> int:
        key = IN_ORDER, self._planned_s(array), array.arrival + array.elements.made
        return to_come if key < self.rank_of(job) else 0


class Asked(_Ordered):
    """The last order of a user-supplied function; later jobs are behind, and returning jobs keep their places."""

    asked = True

    def __init__(self, answer: list[JobId], overdue: dict[JobId, None], patience_s: float) -> None:
        super().__init__(overdue, patience_s)
        self._answer = answer
        self._place = {number: place for place, number in enumerate(answer)}

    def _rank_in_order(self, job: Job) -> Any:
        return IN_ORDER, self._place.get(job.id, LATEST), job.position

    def answered(self, numbers: Iterable[JobId]) -> None:
        """Apply the function's order."""
        self._answer[:] = numbers
        self._place = {number: place for place, number in enumerate(self._answer)}

    def elements_before(self, array: Job, to_come: int, job: Job) -> int:
        return 0  # the function's order for them is unknown


class RoundRobin(_Ordered):
    """Users take turns: a round has one job of each waiting user. A job's rank is its round, then its position.

    A user's jobs stand by position, and the rounds of the jobs before it are taken; those of jobs that were placed
    while an earlier one waits stay taken. A user who comes, or comes back, begins in the current round, or in the one
    after the user's last turn: nobody gains a turn by leaving the queue.
    """

    by_user = True

    def __init__(self, turns: dict[str, Turns]) -> None:
        super().__init__({})
        self._turns = turns
        self._lines: dict[str, list[int]] = {}  # by user, the positions of waiting jobs
        self._heads: list[tuple[int, str]] = []  # (round of the first job, user): outdated entries are skipped
        self._planned: dict[JobId, Job] = {}
        self._moved_up: dict[str, None] = {}

    def group(self, demand: Demand, *, timed: bool) -> DemandGroup:
        return SharedGroup(demand.key, demand, self.rank_of, timed=timed)

    def moved_up(self) -> list[str]:
        found = list(self._moved_up)
        self._moved_up.clear()
        return found

    # ------------------------------------------------------------------------------------------ rounds

    @property
    def _round(self) -> int:
        """The current round: the first in which a job waits."""
        heads = self._heads
        while heads and not (heads[0][1] in self._lines and self._turns[heads[0][1]].taken == heads[0][0]):
            heapq.heappop(heads)
        return heads[0][0] if heads else 0

    def _begins(self, user: str) -> int:
        """Return the round of the first job of a user who does not wait."""
        known = self._turns.get(user)
        return self._round if known is None else max(known.taken, self._round)

    def _round_of(self, user: str, position: int) -> int:
        line = self._lines.get(user)
        if line is None:
            return self._begins(user)
        turns = self._turns[user]
        return turns.taken + bisect_left(line, position) + bisect_left(turns.early, position)

    def _settle(self, user: str) -> None:
        """Add the turns taken before the first waiting job to those in a row."""
        line, turns = self._lines.get(user), self._turns[user]
        over = len(turns.early) if line is None else bisect_left(turns.early, line[0])
        if over:
            del turns.early[:over]
            turns.taken += over
            if line is not None:
                self._heads_at(user)

    def _heads_at(self, user: str) -> None:
        heapq.heappush(self._heads, (self._turns[user].taken, user))
        if len(self._heads) > 2 * len(self._lines) + TURNS_SLACK:
            self._heads = [(self._turns[each].taken, each) for each in self._lines]
            heapq.heapify(self._heads)

    # -------------------------------------------------------------------------------------- the line

    def restores(self, jobs: Iterable[Job]) -> None:
        """Prepare for these jobs, which stood in line before a restart and will join one after the other."""
        for user in {job.submitter: None for job in jobs}:
            self._lines[user] = []
            self._turns.setdefault(user, Turns())
            self._heads_at(user)

    def joins(self, job: Job) -> Any:
        user, position = job.submitter, job.position
        line = self._lines.get(user)
        if line is None:
            begins = self._begins(user)
            self._turns[user] = Turns(begins)
            self._lines[user] = [position]
            self._heads_at(user)
        else:
            insort(line, position)
            early = self._turns[user].early
            at = bisect_left(early, position)
            if at < len(early) and early[at] == position:  # it has lost its places: its turn is its own again
                del early[at]
                self._moved_up[user] = None
        key = self._keys[job.id] = self._key(job)
        if job.plan_at is not None:
            self._planned[job.id] = job
        return key

    def leaves(self, job: Job, *, placed: bool) -> None:
        super().leaves(job, placed=placed)
        self._planned.pop(job.id, None)
        user, position = job.submitter, job.position
        line = self._lines[user]
        del line[bisect_left(line, position)]
        if not line:
            del self._lines[user]
        if placed:
            insort(self._turns[user].early, position)
        else:
            self._moved_up[user] = None
        self._settle(user)
        if not self._lines:
            self._turns.clear()
            self._heads.clear()

    def passes(self, job: Job, position: int) -> None:
        if not self._lines:
            return
        user = job.submitter
        if user in self._lines:
            insort(self._turns[user].early, position)
            self._settle(user)
            return
        begins = self._begins(user)
        self._turns[user] = Turns(begins + 1)
        if len(self._turns) > 2 * len(self._lines) + TURNS_SLACK:
            now = self._round
            for each in [each for each, had in self._turns.items() if each not in self._lines and had.taken <= now]:
                del self._turns[each]

    def moved(self, job: Job) -> Any:
        if job.plan_at is None:
            self._planned.pop(job.id, None)
        else:
            self._planned[job.id] = job
        key = self._keys[job.id] = self._key(job)
        return key

    # ----------------------------------------------------------------------------------------- ranks

    @staticmethod
    def _key(job: Job) -> tuple[int, int]:
        """Return the key within a group, whose jobs of one user stand by position."""
        return (IN_ORDER if job.plan_at is None else PLANNED), job.position

    def _rank_in_order(self, job: Job) -> Any:
        return IN_ORDER, self._round_of(job.submitter, job.position), job.position

    def before(self, job: Job, groups: Iterable[DemandGroup]) -> int:
        rank = self.rank_of(job)
        planned = sorted(self.rank_of(each) for each in self._planned.values())
        if rank[0] == PLANNED:
            return bisect_left(planned, rank)
        _, turn, position = rank
        before = sum(self._of_user_before(user, turn, position) for user in self._lines)
        # Jobs with plans come first, whatever their rounds are.
        late = (
            each
            for each in self._planned.values()
            if (self._round_of(each.submitter, each.position), each.position) >= (turn, position)
        )
        return before + sum(1 for _ in late)

    def _of_user_before(self, user: str, turn: int, position: int) -> int:
        """Return how many waiting jobs of the user stand before that round and position."""
        line, turns = self._lines[user], self._turns[user]
        if turns.early:
            return bisect_left(line, (turn, position), key=lambda each: (self._round_of(user, each), each))
        count = min(max(turn - turns.taken, 0), len(line))
        return count + (0 <= turn - turns.taken < len(line) and line[turn - turns.taken] < position)

    def elements_before(self, array: Job, to_come: int, job: Job) -> int:
        rank = self.rank_of(job)
        if rank[0] == PLANNED:
            return 0
        turn: int = rank[1]
        position: int = rank[2]
        first: int = array.arrival + array.elements.made
        if array.submitter == job.submitter:
            return to_come if first < position else 0
        begins = self._round_of(array.submitter, first)
        count = min(max(turn - begins, 0), to_come)
        return count + (0 <= turn - begins < to_come and first + turn - begins < position)
