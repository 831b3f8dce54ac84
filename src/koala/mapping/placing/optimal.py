"""Mapping by optimisation: the best possible mapping, as a yardstick for the methods that must be quick.

Every task goes onto one machine and no machine over its power. A mixed-integer program (``highspy``) optimises the
LAN hit ratio or the traffic between LANs. It is for small and medium instances: when time runs out, it returns the
best mapping found and the bound that no mapping exceeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from koala.mapping.libraries import library
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph

OBJECTIVES = ("lan-hit", "inter-lan")
OPTIMAL = "optimal"
TIME_LIMIT = "time-limit"
INFEASIBLE = "infeasible"
# A program with more decisions than this is not started: it would end with a useless bound.
OPTIMISED_PAIRS_MAX = 200_000
# Powers and demands are compared with this slack, relative to the machine's power, because the solver uses floats.
POWER_SLACK = 1e-9
# Values are shares; two that differ by less are equal.
SHARE_SLACK = 1e-6


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """The mapping problem in numbers: the demand of each task, the available power and the LAN of each machine.

    ``edges`` are ``(i, j, rqoc)``. Every task is in one of ``clusters``.
    """

    demands: tuple[float, ...]
    edges: tuple[tuple[int, int, float], ...]
    clusters: tuple[tuple[int, ...], ...]
    powers: tuple[float, ...]
    lan_of: tuple[int, ...]

    @classmethod
    def of(cls, graph: TaskGraph, clusters: Sequence[Sequence[int]], dendrogram: Dendrogram) -> Instance:
        """Return the instance of a graph with its clusters on the whole grid."""
        flat = dendrogram.flat
        return cls(
            demands=tuple(graph.mcr * rcr for rcr in graph.rcr),
            edges=graph.edges,
            clusters=tuple(map(tuple, clusters)),
            powers=tuple(flat.power),
            lan_of=tuple(flat.machine_lan),
        )


class Optimised(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an optimisation.

    ``machines`` has the machine of each task in the best mapping found, and ``value`` is what that reaches: a LAN hit
    ratio, or the share of the traffic between LANs. ``bound`` is the limit of all mappings: none has a higher hit
    ratio, or a lower share. ``status`` is ``optimal``, where value and bound are equal; ``time-limit``; or
    ``infeasible``, where no mapping exists. There is no value if no mapping was found, and no bound either if none
    exists.
    """

    machines: tuple[int, ...] | None
    value: float | None
    bound: float | None
    status: str

    @property
    def gap(self) -> float | None:
        """The distance of the value from the bound, None without a value."""
        return None if self.value is None or self.bound is None else abs(self.value - self.bound)


class TooLargeToOptimiseError(ValueError):
    """More tasks and machines than an optimisation can handle."""

    def __init__(self, tasks: int, machines: int, pairs: int) -> None:
        super().__init__(
            f"{tasks} tasks on {machines} machines are {pairs} decisions, more than {OPTIMISED_PAIRS_MAX} "
            "(OPTIMISED_PAIRS_MAX)"
        )

    def for_user(self) -> str:
        """Return how large it is, and what to do."""
        return f"{self}; map it by another method, or a smaller part of it"


def value_of(instance: Instance, machines: Sequence[int], objective: str) -> float:
    """Return the value of a mapping: the LAN hit ratio, or the share of the traffic between LANs.

    The hit ratio is the mean over clusters of the largest share of their tasks in one LAN.
    """
    lans = [instance.lan_of[machine] for machine in machines]
    if objective == "inter-lan":
        whole = math.fsum(rqoc for _, _, rqoc in instance.edges)
        between = math.fsum(rqoc for one, other, rqoc in instance.edges if lans[one] != lans[other])
        return between / whole if whole else 0.0
    shares = []
    for tasks in instance.clusters:
        inside = [lans[task] for task in tasks]
        shares.append(max(map(inside.count, set(inside))) / len(inside))
    return math.fsum(shares) / len(shares)


def no_mapping_exists(demands: Sequence[float], powers: Sequence[float]) -> bool:
    """Return True if the tasks certainly have no place on the machines, without a search.

    For each demand, all tasks with this or a larger demand must find room: the machines have only so much power in
    total, and each holds a limited number of such tasks. False says nothing.
    """
    left = sorted(powers, reverse=True)
    wanted = 0.0
    for count, demand in enumerate(sorted(demands, reverse=True), start=1):
        wanted += demand
        able = [power * (1 + POWER_SLACK) for power in left if power * (1 + POWER_SLACK) >= demand]
        if wanted > math.fsum(able) or count > sum(math.floor(power / demand) for power in able):
            return True
    return False


def optimised(
    instance: Instance,
    objective: str = "lan-hit",
    *,
    time_limit_s: float = 10.0,
    start: Sequence[int] | None = None,
) -> Optimised:
    """Return the best mapping and the bound. ``start`` is a mapping to begin with, given by the machine of each task.

    With a start the answer always has a mapping, at least as good as the start. Raises ``ValueError`` for a start
    with a machine over its power, ``TooLargeToOptimiseError`` and, without the extra ``mapping``,
    ``MissingLibraryError``.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"there is no objective {objective!r}; there are: {', '.join(OBJECTIVES)}")
    if no_mapping_exists(instance.demands, instance.powers):
        return Optimised(machines=None, value=None, bound=None, status=INFEASIBLE)
    if start is not None:
        if not _fits(instance, start):
            raise ValueError("the start puts more onto a machine than its power; start from a mapping that fits")
        value = value_of(instance, start, objective)
        ideal = 1.0 if objective == "lan-hit" else 0.0
        if abs(value - ideal) <= SHARE_SLACK:
            return Optimised(machines=tuple(start), value=value, bound=value, status=OPTIMAL)
    return _Program(instance, objective).solve(time_limit_s, start)


def _fits(instance: Instance, machines: Sequence[int]) -> bool:
    loads = [0.0] * len(instance.powers)
    for demand, machine in zip(instance.demands, machines, strict=True):
        loads[machine] += demand
    return all(load <= power * (1 + 2 * POWER_SLACK) for load, power in zip(loads, instance.powers, strict=True))


class _Row(NamedTuple):
    """``low <= sum of value * column <= high``."""

    low: float
    high: float
    columns: list[int]
    values: list[float]


class _Program:
    """The mixed-integer program of one instance. It always maximises a share in [0, 1].

    There is a column for each pair of a task and a machine that can take it alone. Further columns express the
    objective; they take the right values by themselves once those of the pairs are whole.
    """

    def __init__(self, instance: Instance, objective: str) -> None:
        self._instance = instance
        self._objective = objective
        self._lans = sorted(set(instance.lan_of))
        self._gains: list[float] = []
        self._rows: list[_Row] = []
        self._whole: list[int] = []
        self._constant = 0.0
        self._pairs = self._add_pairs()
        self._inside = self._columns_by_lan()
        self._add_assignment()
        if objective == "lan-hit":
            self._add_hits()
        else:
            self._add_traffic()

    def _column(self, gain: float = 0.0, *, whole: bool = False) -> int:
        self._gains.append(gain)
        if whole:
            self._whole.append(len(self._gains) - 1)
        return len(self._gains) - 1

    def _at_most(self, bound: float, columns: list[int], values: list[float]) -> None:
        self._rows.append(_Row(-math.inf, bound, columns, values))

    def _add_pairs(self) -> dict[tuple[int, int], int]:
        instance = self._instance
        pairs = [
            (task, machine)
            for task, demand in enumerate(instance.demands)
            for machine, power in enumerate(instance.powers)
            if demand <= power * (1 + POWER_SLACK)
        ]
        if len(pairs) > OPTIMISED_PAIRS_MAX:
            raise TooLargeToOptimiseError(len(instance.demands), len(instance.powers), len(pairs))
        return {pair: self._column(whole=True) for pair in pairs}

    def _columns_by_lan(self) -> dict[tuple[int, int], list[int]]:
        """Return for each task and LAN the columns that put the task into the LAN, if there are any."""
        found: dict[tuple[int, int], list[int]] = {}
        for (task, machine), column in self._pairs.items():
            found.setdefault((task, self._instance.lan_of[machine]), []).append(column)
        return found

    def _add_assignment(self) -> None:
        """Put every task onto one machine, and no machine over its power."""
        instance = self._instance
        of_task: list[list[int]] = [[] for _ in instance.demands]
        of_machine: list[list[tuple[int, float]]] = [[] for _ in instance.powers]
        for (task, machine), column in self._pairs.items():
            of_task[task].append(column)
            # Shares of the machine's power, so that all rows have the same scale.
            of_machine[machine].append((column, instance.demands[task] / instance.powers[machine]))
        for columns in of_task:
            self._rows.append(_Row(1.0, 1.0, columns, [1.0] * len(columns)))
        for shares in of_machine:
            if math.fsum(share for _, share in shares) > 1.0:
                self._at_most(1.0, [column for column, _ in shares], [share for _, share in shares])

    def _add_hits(self) -> None:
        """Let every cluster choose a home LAN; a task counts if it is in its cluster's home."""
        instance = self._instance
        power_of_lan = dict.fromkeys(self._lans, 0.0)
        for power, lan in zip(instance.powers, instance.lan_of, strict=True):
            power_of_lan[lan] += power
        each = 1.0 / len(instance.clusters)
        for tasks in instance.clusters:
            if len(tasks) == 1:
                self._constant += each  # a single task is at home anywhere
                continue
            homes = []
            for lan in self._lans:
                able = [task for task in tasks if (task, lan) in self._inside]
                if not able:
                    continue
                home = self._column(whole=True)
                homes.append(home)
                hits = [self._hit(task, lan, home, each / len(tasks)) for task in able]
                demands = [instance.demands[task] for task in able]
                # Without this, halves of many homes would promise more than any home can hold.
                scale = max(power_of_lan[lan], max(demands))
                values = [demand / scale for demand in demands]
                self._at_most(0.0, [*hits, home], [*values, -power_of_lan[lan] / scale * (1 + POWER_SLACK)])
            self._at_most(1.0, homes, [1.0] * len(homes))

    def _hit(self, task: int, lan: int, home: int, gain: float) -> int:
        hit = self._column(gain)
        self._at_most(0.0, [hit, home], [1.0, -1.0])
        inside = self._inside[task, lan]
        self._at_most(0.0, [hit, *inside], [1.0, *[-1.0] * len(inside)])
        return hit

    def _add_traffic(self) -> None:
        """Count traffic whose two ends are in the same LAN."""
        instance = self._instance
        whole = math.fsum(rqoc for _, _, rqoc in instance.edges)
        for one, other, rqoc in instance.edges:
            both = [lan for lan in self._lans if (one, lan) in self._inside and (other, lan) in self._inside]
            for lan in both:
                same = self._column(rqoc / whole)
                for task in (one, other):
                    inside = self._inside[task, lan]
                    self._at_most(0.0, [same, *inside], [1.0, *[-1.0] * len(inside)])
        if not instance.edges:
            self._constant = 1.0

    def solve(self, time_limit_s: float, start: Sequence[int] | None) -> Optimised:
        highs = library("highspy")
        solver = self._solver(time_limit_s)
        if start is not None:
            self._begin_with(solver, start)
        solver.run()
        status = solver.getModelStatus()
        if status == highs.HighsModelStatus.kInfeasible:
            return Optimised(machines=None, value=None, bound=None, status=INFEASIBLE)
        info = solver.getInfo()
        bound = self._as_value(min(1.0, self._constant + info.mip_dual_bound))
        machines = None if start is None else tuple(start)
        if info.primal_solution_status == highs.SolutionStatus.kSolutionStatusFeasible:
            machines = self._better(machines, self._machines(solver.getSolution().col_value))
        if machines is None:
            return Optimised(machines=None, value=None, bound=bound, status=TIME_LIMIT)
        value = value_of(self._instance, machines, self._objective)
        if status == highs.HighsModelStatus.kOptimal:
            return Optimised(machines=machines, value=value, bound=value, status=OPTIMAL)
        return Optimised(machines=machines, value=value, bound=bound, status=TIME_LIMIT)

    def _begin_with(self, solver: Any, machines: Sequence[int]) -> None:
        """Give the solver the columns of the pairs; it finds those of the objective itself."""
        np = library("numpy")
        chosen = set(enumerate(machines))
        columns = np.array(list(self._pairs.values()), np.int32)
        solver.setSolution(len(columns), columns, np.array([float(pair in chosen) for pair in self._pairs]))

    def _better(self, one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the better of two mappings; the second if they are equal or it is the only one."""
        if one is None or other is None:
            return other or one
        values = [value_of(self._instance, machines, self._objective) for machines in (one, other)]
        first = values[0] > values[1] if self._objective == "lan-hit" else values[0] < values[1]
        return one if first else other

    def _as_value(self, share: float) -> float:
        return share if self._objective == "lan-hit" else 1.0 - share

    def _solver(self, time_limit_s: float) -> Any:
        np = library("numpy")
        highs = library("highspy")
        solver = highs.Highs()
        for option, setting in {
            "output_flag": False,
            "threads": 1,
            "parallel": "off",
            "time_limit": time_limit_s,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": SHARE_SLACK / 10,
            "mip_feasibility_tolerance": POWER_SLACK,
            "primal_feasibility_tolerance": POWER_SLACK,
        }.items():
            solver.setOptionValue(option, setting)
        count = len(self._gains)
        nothing = np.zeros(0, np.int32)
        solver.addCols(
            count, np.array(self._gains), np.zeros(count), np.ones(count), 0, nothing, nothing, np.zeros(0)
        )
        starts = np.cumsum([0, *(len(row.columns) for row in self._rows)])
        solver.addRows(
            len(self._rows),
            np.array([row.low for row in self._rows]),
            np.array([row.high for row in self._rows]),
            int(starts[-1]),
            starts[:-1].astype(np.int32),
            np.array([column for row in self._rows for column in row.columns], np.int32),
            np.array([value for row in self._rows for value in row.values]),
        )
        whole = np.array(self._whole, np.int32)
        kinds = np.full(len(whole), highs.HighsVarType.kInteger)
        solver.changeColsIntegrality(len(whole), whole, kinds)
        solver.changeObjectiveSense(highs.ObjSense.kMaximize)
        return solver

    def _machines(self, values: Sequence[float]) -> tuple[int, ...] | None:
        """Return the machine of each task; None if rounding has put more onto a machine than its power and slack."""
        instance = self._instance
        machines = [-1] * len(instance.demands)
        for (task, machine), column in self._pairs.items():
            if values[column] > 0.5:
                machines[task] = machine
        return tuple(machines) if -1 not in machines and _fits(instance, machines) else None
