"""Groups of a placement queue: jobs with exactly the same demand, in the order of the queue.

A rank is the position of a job in its queue. Ranks are only compared; no two jobs of a queue have the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace, merge
from typing import Any, Protocol

from koala.core.encoded import INFINITY
from koala.core.life.job import Job
from koala.policies.interface import Demand


class EndsBy(Protocol):
    """A source of the jobs' run times."""

    def first_to_end_by(
        self, jobs: Sequence[Job], walltimes_s: Sequence[float | None], start: int, end: float
    ) -> int:
        """Return the first of the jobs, from ``start`` on, that would end by then if it started now; -1 for none."""

    def longest_s(self, end: float) -> float:
        """Return a bound: no job with a longer walltime would end by then if it started now."""


class DemandGroup:
    """The waiting jobs of one demand.

    A job's key is its rank, or a value that gives the same order among these jobs. Where plans are made their
    walltimes are kept beside: many are examined in search of the first that ends early enough.
    """

    __slots__ = ("demand", "jobs", "key", "keys", "shortest_s", "timed", "walltimes_s")

    def __init__(self, key: Hashable, demand: Demand, *, timed: bool) -> None:
        self.key = key
        self.demand = demand
        self.timed = timed
        self.keys: list[Any] = []
        self.jobs: list[Job] = []
        self.walltimes_s: list[float | None] = []
        self.shortest_s = INFINITY  # no job here has a shorter walltime

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def insert(self, job: Job, key: Any) -> None:
        """Insert the job at this key."""
        place = bisect_left(self.keys, key)
        self.keys.insert(place, key)
        self.jobs.insert(place, job)
        if self.timed:
            walltime_s = job.walltime_s
            self.walltimes_s.insert(place, walltime_s)
            if walltime_s is None or walltime_s < self.shortest_s:
                self.shortest_s = walltime_s or 0.0

    def look_at(self, user: str) -> None:
        """Note that the first job of the user has changed, or has moved."""

    def remove(self, key: Any) -> Job:
        """Remove the job of this key."""
        place = bisect_left(self.keys, key)
        del self.keys[place]
        if self.timed:
            del self.walltimes_s[place]
        return self.jobs.pop(place)

    def rearrange(self, key_of: Callable[[Job], Any]) -> None:
        """Sort by other keys."""
        keyed = sorted([(key_of(job), job) for job in self.jobs], key=_key)
        self.keys = [key for key, _ in keyed]
        self.jobs = [job for _, job in keyed]
        if self.timed:
            self.walltimes_s = [job.walltime_s for job in self.jobs]

    # ------------------------------------------------------------------------------------------ by rank

    def first(self) -> Any:
        """Return the rank of the first job."""
        return self.keys[0]

    def now_at(self, rank: Any) -> Any | None:
        """Return the present rank of the job at this former rank or, if it has left, of the next; None if
        there is none."""
        return rank

    def job(self, rank: Any) -> Job:
        """Return the job of this rank."""
        return self.jobs[bisect_left(self.keys, rank)]

    def after(self, rank: Any) -> Any | None:
        """Return the rank of the first job behind this rank; None if there is none."""
        following = bisect_right(self.keys, rank)
        return self.keys[following] if following < len(self.keys) else None

    def ends_by(self, rank: Any, times: EndsBy, end: float, *, behind: bool = False) -> Any | None:
        """Return the rank of the first job, from this rank on or only behind it, that would end by then if
        it started now.

        None if there is none.
        """
        start = (bisect_right if behind else bisect_left)(self.keys, rank)
        found = times.first_to_end_by(self.jobs, self.walltimes_s, start, end)
        return self.keys[found] if found >= 0 else None


class SharedGroup(DemandGroup):
    """The same where users take turns: the jobs of each user stand by position, and their ranks follow from that.

    The cost of a pass does not grow with the number of users: the first jobs of all users are kept by rank.
    """

    __slots__ = ("_by_position", "_heads", "_rank_of", "users")

    def __init__(self, key: Hashable, demand: Demand, rank_of: Callable[[Job], Any], *, timed: bool) -> None:
        super().__init__(key, demand, timed=timed)
        self.users: dict[str, DemandGroup] = {}
        self._rank_of = rank_of
        # (rank, user) of the first job of each user: a job that has fallen behind keeps its old rank here.
        self._heads: list[tuple[Any, str]] = []
        self._by_position: dict[int, Job] = {}

    def __len__(self) -> int:
        return len(self._by_position)

    def __iter__(self) -> Iterator[Job]:
        return merge(*[group.jobs for group in self.users.values()], key=self._rank_of)

    def insert(self, job: Job, key: Any) -> None:
        group = self.users.get(job.submitter)
        if group is None:
            group = self.users[job.submitter] = DemandGroup(self.key, self.demand, timed=self.timed)
        group.insert(job, key)
        self._by_position[job.position] = job
        if group.jobs[0] is job:
            self.look_at(job.submitter)

    def remove(self, key: Any) -> Job:
        job = self._by_position.pop(key[-1])
        group = self.users[job.submitter]
        was_first = group.jobs[0] is job
        group.remove(key)
        if not group.jobs:
            del self.users[job.submitter]
        elif was_first:
            self.look_at(job.submitter)
        return job

    def look_at(self, user: str) -> None:
        if user in self.users:
            heappush(self._heads, (self._rank_of(self.users[user].jobs[0]), user))

    def first(self) -> Any:
        heads = self._heads
        while True:
            rank, user = heads[0]
            group = self.users.get(user)
            if group is None:
                heappop(heads)
                continue
            now_at = self._rank_of(group.jobs[0])
            if now_at == rank:
                return rank
            heapreplace(heads, (now_at, user))

    def now_at(self, rank: Any) -> Any | None:
        job = self._by_position.get(rank[-1])
        return self.after(rank) if job is None else self._rank_of(job)

    def job(self, rank: Any) -> Job:
        return self._by_position[rank[-1]]

    def after(self, rank: Any) -> Any | None:
        if not self._by_position:
            return None
        first = self.first()
        if first > rank:
            return first
        found = None
        for head, group in self._by_heads():
            if found is not None and head > found:
                break
            following = bisect_right(group.jobs, rank, key=self._rank_of)
            if following < len(group.jobs):
                its = self._rank_of(group.jobs[following])
                found = its if found is None or its < found else found
        return found

    def _by_heads(self) -> Iterator[tuple[Any, DemandGroup]]:
        """Yield the jobs of each user with a lower bound of their ranks, in the order of these bounds."""
        seen: set[str] = set()
        for rank, user in sorted(self._heads):
            if user in self.users and user not in seen:
                seen.add(user)
                yield rank, self.users[user]

    def ends_by(self, rank: Any, times: EndsBy, end: float, *, behind: bool = False) -> Any | None:
        longest_s = times.longest_s(end)
        found = None
        for head, group in self._by_heads():
            if found is not None and head > found:
                break
            if group.shortest_s > longest_s:
                continue
            at = times.first_to_end_by(group.jobs, group.walltimes_s, 0, end)
            if at < 0:
                continue
            its = self._rank_of(group.jobs[at])
            if its < rank or (behind and its == rank):
                start = (bisect_right if behind else bisect_left)(group.jobs, rank, key=self._rank_of)
                at = times.first_to_end_by(group.jobs, group.walltimes_s, start, end)
                if at < 0:
                    continue
                its = self._rank_of(group.jobs[at])
            found = its if found is None or its < found else found
        return found


def _key(entry: tuple[Any, Job]) -> Any:
    return entry[0]
