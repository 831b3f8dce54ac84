"""The jobs of a simulation and when they come: drawn from generators, listed one by one, or given as arrays.

A workload has no seed of its own; ``Workload.arrivals`` draws it for one, lazily, so that a hundred thousand
jobs cost no more than the requests that differ. Reading workload files is ``koala.descriptions.workload.form``;
how a generator draws is ``koala.simulator.workloads.generators``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import NamedTuple, TypeAlias

from koala.model.grid import Grid, StoredFile
from koala.model.request import Application, Component, Request
from koala.model.task_graph import SpawnedTasks
from koala.policies import Catalogue


class Arrival(NamedTuple):
    """One job on its way: ``execution_s`` on one cluster, and by which fraction each further one slows it down.

    That fraction is over the reference link; the shares of it that go with bandwidth and latency change with the
    links combined, see ``koala.simulator.world.wide_area``.
    """

    at_s: float
    request: Request
    execution_s: float
    per_extra_cluster: float = 0.0
    bandwidth_share: float = 0.0
    latency_share: float = 0.0
    guest: bool = False
    owner: str = ""
    # Of a job of tasks: how long after its first start which more come.
    spawns: tuple[tuple[float, SpawnedTasks], ...] = ()
    breaks: int = 0  # with this exit code its application fails wherever it runs; 0 does well


Source: TypeAlias = Callable[[Grid, int], Iterator[Arrival]]
Files: TypeAlias = Callable[[Grid, int], tuple[StoredFile, ...]]
Check: TypeAlias = Callable[[Grid, Catalogue], None]


class WorkloadError(ValueError):
    """A workload that cannot be: says which job or which numbers, and what to change."""

    def for_user(self) -> str:
        return str(self)


def _by_time(arrival: Arrival) -> float:
    return arrival.at_s


def _no_files(_grid: Grid, _seed: int) -> tuple[StoredFile, ...]:
    return ()


def _no_check(_grid: Grid, _catalogue: Catalogue) -> None:
    return None


class Workload:
    """Jobs from one or more sources, merged by time; ``jobs`` is how many there are in all.

    With ``hold_when_waiting`` the submission is held back, and all that follows it shifts, while that many
    jobs wait in the placement queues.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        jobs: int,
        *,
        name: str = "workload",
        hold_when_waiting: int | None = None,
        files: Files = _no_files,
        check: Check = _no_check,
    ) -> None:
        self.name = name
        self.jobs = jobs
        self.hold_when_waiting = hold_when_waiting
        self._sources = tuple(sources)
        self._files = files
        self._check = check

    def arrivals(self, grid: Grid, seed: int) -> Iterator[Arrival]:
        """Every job, in the order of arrival; the same for the same grid and seed."""
        if len(self._sources) == 1:
            return self._sources[0](grid, seed)
        return merge(*(source(grid, seed) for source in self._sources), key=_by_time)

    def files(self, grid: Grid, seed: int) -> tuple[StoredFile, ...]:
        """The files that the workload brings along; where their replicas are may depend on the seed."""
        return self._files(grid, seed)

    def check(self, grid: Grid, catalogue: Catalogue) -> None:
        """Raise WorkloadError where a job names a policy, a site or a file that is not there.

        Only a workload from a file names them beforehand; of any other, such jobs fail in the run.
        """
        self._check(grid, catalogue)

    @classmethod
    def from_arrivals(
        cls, arrivals: Sequence[Arrival], *, name: str = "workload", hold_when_waiting: int | None = None
    ) -> Workload:
        """Just these jobs, in order of time."""
        ordered = sorted(arrivals, key=_by_time)

        def source(_grid: Grid, _seed: int) -> Iterator[Arrival]:
            return iter(ordered)

        return cls([source], len(ordered), name=name, hold_when_waiting=hold_when_waiting)

    @classmethod
    def from_arrays(
        cls,
        submit_s: Sequence[float],
        processors: Sequence[int],
        execution_s: Sequence[float],
        *,
        name: str = "arrays",
    ) -> Workload:
        """Jobs of one component each, from three columns that are in order of submission."""
        if not len(submit_s) == len(processors) == len(execution_s):
            raise WorkloadError(
                f"{name}: the columns have {len(submit_s)}, {len(processors)} and {len(execution_s)} rows; "
                "give one submission time, size and execution time for each job"
            )
        for row in range(1, len(submit_s)):
            if submit_s[row] < submit_s[row - 1]:
                raise WorkloadError(f"{name}: job {row + 1} is submitted before job {row}; sort the jobs by time")

        def source(_grid: Grid, _seed: int) -> Iterator[Arrival]:
            requests: dict[int, Request] = {}
            for row, size in enumerate(processors):
                request = requests.get(size)
                if request is None:
                    request = requests[size] = single_component(int(size))
                yield Arrival(float(submit_s[row]), request, float(execution_s[row]))

        return cls([source], len(submit_s), name=name)


def single_component(processors: int, name: str = "job") -> Request:
    """A request for one component anywhere."""
    return Request(
        components=(Component(processors=processors, application=Application(executable=name)),), name=name
    )
