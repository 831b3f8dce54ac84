"""The measurements of all runs of the experiment of 2005, as one value for each seed and group of jobs.

Priority, size and number of components define a group; sums over groups are sums over their jobs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from koala.simulator import DONE, JobRow
from koala.study import FinishedUnit, Interval, mean_interval, number

UNSTABLE, STABLE = "unstable", "stable"
PRIORITIES = ("high", "low")
# Size -> the possible numbers of components of jobs of this size.
COMPONENTS = {36: (3, 4), 72: (3, 4, 6, 8)}

BySeed: TypeAlias = dict[int, float]


class JobSums(NamedTuple):
    """Sums over the done jobs of one group."""

    jobs: int = 0
    failures: int = 0
    coallocated: int = 0
    placement_s: float = 0.0
    start_delay_s: float = 0.0
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0

    def __add__(self, other: object) -> JobSums:
        if not isinstance(other, JobSums):
            return NotImplemented
        return JobSums(*map(operator.add, self, other))

    def as_json(self) -> dict[str, float]:
        return dict(self._asdict())


class Measure(NamedTuple):
    """A quantity of a group: a sum over its jobs and its divisor."""

    of: Callable[[JobSums], float]
    out_of: Callable[[JobSums], float]


FAILURE_SHARE = Measure(lambda cell: cell.failures, lambda cell: cell.failures + cell.jobs)
COALLOCATED_SHARE = Measure(lambda cell: cell.coallocated, lambda cell: cell.jobs)
PLACEMENT_S = Measure(lambda cell: cell.placement_s, lambda cell: cell.jobs)
START_DELAY_S = Measure(lambda cell: cell.start_delay_s, lambda cell: cell.jobs)
GAINED_PROCESSOR_S = Measure(lambda cell: cell.gained_processor_s, lambda cell: cell.jobs)
WASTED_PROCESSOR_S = Measure(lambda cell: cell.wasted_processor_s, lambda cell: cell.jobs)


def cell_name(priority: str, size: int, components: int) -> str:
    """Return the name of a group in a result."""
    return f"{priority}/{size}/{components}"


def cells_of(rows: Iterable[JobRow]) -> dict[str, JobSums]:
    """Return the done jobs, summed up by priority, size and number of components."""
    cells: dict[str, JobSums] = {}
    for row in rows:
        if row.outcome == DONE:
            name = cell_name(row.priority, row.processors, row.components)
            cells[name] = cells.get(name, JobSums()) + JobSums(
                1,
                row.failures,
                int(row.clusters > 1),
                number(row, "queue_s"),
                number(row, "start_delay_s"),
                row.gained_processor_s,
                row.wasted_processor_s,
            )
    return dict(sorted(cells.items()))


class JobFilter(NamedTuple):
    """A selection of jobs; None selects all."""

    priority: str | None = None
    size: int | None = None
    components: int | None = None

    def has(self, name: str) -> bool:
        """Return True if the group of this name belongs to it."""
        priority, size, components = name.split("/")
        wanted = (self.priority, self.size, self.components)
        return all(
            want is None or str(want) == is_ for want, is_ in zip(wanted, (priority, size, components), strict=True)
        )


ALL = JobFilter()


class Koala2005Data:
    """All runs, by system and seed."""

    def __init__(self, results: Sequence[FinishedUnit]) -> None:
        self._runs: dict[str, dict[int, dict[str, Any]]] = {UNSTABLE: {}, STABLE: {}}
        for unit, result in results:
            self._runs[unit.work["system"]][unit.work["seed"]] = result
        self._cells = {
            system: {
                seed: {name: JobSums(**cell) for name, cell in run["cells"].items()} for seed, run in runs.items()
            }
            for system, runs in self._runs.items()
        }

    def runs(self, system: str) -> Mapping[int, dict[str, Any]]:
        """Return the results of a system by seed."""
        return self._runs[system]

    def use(self, name: str) -> BySeed:
        """Return one of the summary values of the unstable system's utilisation."""
        return {seed: run["use"][name] for seed, run in self._runs[UNSTABLE].items()}

    def values(self, system: str, measure: Measure, group: JobFilter = ALL) -> BySeed:
        """Return the measure of a group for each seed that has such jobs."""
        found = {}
        for seed, cells in self._cells[system].items():
            cell = sum((cell for name, cell in cells.items() if group.has(name)), JobSums())
            if measure.out_of(cell) > 0:
                found[seed] = measure.of(cell) / measure.out_of(cell)
        return found

    def interval(self, system: str, measure: Measure, group: JobFilter = ALL) -> Interval | None:
        """Return the mean of that over the seeds, or None if no run has such jobs."""
        values = self.values(system, measure, group)
        return mean_interval(list(values.values())) if values else None

    def slopes(self, system: str, measure: Measure, group: JobFilter = ALL) -> BySeed:
        """Return the slope of the measure over components, fitted for each seed over its jobs."""
        found = {}
        for seed, cells in self._cells[system].items():
            points = list(self._points(measure, {name: cell for name, cell in cells.items() if group.has(name)}))
            slope = _slope(points)
            if slope is not None:
                found[seed] = slope
        return found

    @staticmethod
    def _points(measure: Measure, cells: Mapping[str, JobSums]) -> Iterator[tuple[float, float, float]]:
        """Yield (components, value, weight) of each group."""
        for name, cell in cells.items():
            weight = measure.out_of(cell)
            if weight > 0:
                yield float(name.rsplit("/", 1)[1]), measure.of(cell) / weight, weight

    def as_json(self) -> dict[str, Any]:
        """Return every group of both systems, the utilisation and other counts, as means with intervals."""
        counted = ("component_failures", "preemptions", "makespan_s", "not_completed")
        return {
            system: {
                "groups": {
                    cell_name(*group): self._group_json(system, JobFilter(*group))
                    for size, counts in COMPONENTS.items()
                    for components in counts
                    for group in ((priority, size, components) for priority in PRIORITIES)
                },
                "counts": {
                    name: mean_interval([run[name] for run in runs.values()]).as_json() for name in counted if runs
                },
                "seeds": sorted(runs),
            }
            for system, runs in self._runs.items()
        } | {
            "utilisation": {
                name: mean_interval(list(values.values())).as_json()
                for name in ("busiest_window", "busiest_hour", "while_submitting", "mean", "mean_others")
                if (values := self.use(name))
            }
        }

    def _group_json(self, system: str, group: JobFilter) -> dict[str, Any]:
        measures = {
            "failure_share": FAILURE_SHARE,
            "coallocated_share": COALLOCATED_SHARE,
            "placement_s": PLACEMENT_S,
            "start_delay_s": START_DELAY_S,
            "gained_processor_s": GAINED_PROCESSOR_S,
            "wasted_processor_s": WASTED_PROCESSOR_S,
        }
        intervals = {name: self.interval(system, measure, group) for name, measure in measures.items()}
        return {name: None if interval is None else interval.as_json() for name, interval in intervals.items()}


def _slope(points: Sequence[tuple[float, float, float]]) -> float | None:
    """Return the least-squares slope of weighted points, or None if all have one place."""
    weight = sum(each for _, _, each in points)
    if not weight:
        return None
    mean_x = sum(x * each for x, _, each in points) / weight
    mean_y = sum(y * each for _, y, each in points) / weight
    spread = sum(each * (x - mean_x) ** 2 for x, _, each in points)
    if spread <= 0.0:
        return None
    return sum(each * (x - mean_x) * (y - mean_y) for x, y, each in points) / spread
