"""The jobs of a simulation and their arrival times: drawn from generators, listed one by one, or given as arrays.

A workload has no seed of its own; ``Workload.arrivals`` draws it for one, lazily, so that a hundred thousand jobs
cost no more than their distinct requests. ``koala.descriptions.workload.form`` reads workload files;
``koala.simulator.workloads.generators`` draws from generators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import NamedTuple, TypeAlias

from koala.model.grid import Grid, StoredFile
from koala.model.request import Application, Component, Request
from koala.model.task_graph import SpawnedTasks
from koala.policies import Catalogue

# Replaces an exit code: no site accepts the job.
REFUSED = -1


class Arrival(NamedTuple):
    """One job of a workload: its arrival, its request, and its run time.

    - ``execution_s``: on one cluster; each further one lengthens it by the fraction ``per_extra_cluster``;
    - ``bandwidth_share``, ``latency_share``: the parts of that fraction that depend on the links;
    - ``owner``: the job's user; ``guest``: whether sites may preempt it;
    - ``spawns``: for a job of tasks, how long after its first start which more come;
    - ``breaks``: the exit code with which its application fails wherever it runs, 0 for none; ``REFUSED`` if no site
      accepts it, by its own fault.

    >>> from koala.descriptions import read_job
    >>> from koala.simulator import Arrival, Workload, clusters_in_short, simulate
    >>> wide = read_job("components: [{processors: 6, count: 2}]", "wide.yaml")
    >>> workload = Workload.from_arrivals([Arrival(0.0, wide, 100.0, per_extra_cluster=0.5)])
    >>> [(row.sites, row.execution_s) for row in simulate(clusters_in_short("2x8"), workload).rows()]
    [('c1+c2', 150.0)]
    """

    at_s: float
    request: Request
    execution_s: float
    per_extra_cluster: float = 0.0
    bandwidth_share: float = 0.0
    latency_share: float = 0.0
    guest: bool = False
    owner: str = ""
    spawns: tuple[tuple[float, SpawnedTasks], ...] = ()
    breaks: int = 0


Source: TypeAlias = Callable[[Grid, int], Iterator[Arrival]]
Files: TypeAlias = Callable[[Grid, int], tuple[StoredFile, ...]]
Check: TypeAlias = Callable[[Grid, Catalogue], None]


class WorkloadError(ValueError):
    """A workload that cannot be run: the message says which job or which numbers, and what to change.

    >>> from koala.simulator import Workload, WorkloadError
    >>> try:
    ...     Workload.from_arrays([0.0, 5.0], [4], [60.0, 60.0])
    ... except WorkloadError as error:
    ...     print(error)
    arrays: the columns have 2, 1 and 2 rows; give one submission time, size and execution time for each job
    """

    def for_user(self) -> str:
        """Return the message itself."""
        return str(self)


def _by_time(arrival: Arrival) -> float:
    return arrival.at_s


def _no_files(_grid: Grid, _seed: int) -> tuple[StoredFile, ...]:
    return ()


def _no_check(_grid: Grid, _catalogue: Catalogue) -> None:
    return None


class Workload:
    """The jobs of a run, ``jobs`` in number, from one or more sources, merged by time.

    A source gives the jobs for a grid and a seed, in order of time. Most workloads come from ``from_arrays``,
    ``from_arrivals`` or ``trace_workload``. With ``hold_when_waiting`` a submission is held back, and all later ones
    shift, while that many jobs wait for places.

    >>> from koala.simulator import Workload, clusters_in_short, simulate
    >>> workload = Workload.from_arrays(submit_s=[0, 10, 20], processors=[8, 8, 4], execution_s=[60, 60, 60])
    >>> [row.wait_s for row in simulate(clusters_in_short("1x8"), workload).rows()]
    [0.0, 50.0, 100.0]
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
        """Yield every job, in the order of arrival; the same for the same grid and seed."""
        if len(self._sources) == 1:
            return self._sources[0](grid, seed)
        return merge(*(source(grid, seed) for source in self._sources), key=_by_time)

    def files(self, grid: Grid, seed: int) -> tuple[StoredFile, ...]:
        """Return the files of the workload; the places of their replicas may depend on the seed."""
        return self._files(grid, seed)

    def check(self, grid: Grid, catalogue: Catalogue) -> None:
        """Raise WorkloadError if a job names an unknown policy, site or file.

        Only a workload from a file names them beforehand; with any other, such jobs fail in the run.
        """
        self._check(grid, catalogue)

    @classmethod
    def from_arrivals(
        cls, arrivals: Sequence[Arrival], *, name: str = "workload", hold_when_waiting: int | None = None
    ) -> Workload:
        """Return exactly these jobs, in order of time."""
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
        """Return jobs of one component each, from three columns that are in order of submission."""
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
    """Return a request for one component anywhere."""
    return Request(
        components=(Component(processors=processors, application=Application(executable=name)),), name=name
    )
