"""The interface of mapping: clustered tasks onto the machines of a grid, by one of several methods.

``wase`` and ``greedy`` are the paper's; the others go beyond it. All or nothing: a failed mapping leaves no trace.
``clustering`` clusters the tasks; ``spawning`` places tasks that come while the application runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koala.mapping.placing.closest_first import SearchOrders
from koala.mapping.placing.power_left import Placing, PowerLeft
from koala.mapping.placing.scarce_machines import map_scarcely
from koala.mapping.placing.soft_bandwidth import WantsBandwidth
from koala.mapping.placing.suitability import best_fit, powers_by_size
from koala.mapping.placing.wase import no_machine, select_lans
from koala.mapping.placing.whole_clusters import CombinedJudge, Judge, Lenient, WantsAffinity, map_whole
from koala.mapping.result import NoPlace, TaskMapping, plurality_lan
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph

# Methods by name, each with a short description.
METHODS = {
    "wase": "the paper's: each cluster into the closest LAN that is suitable on average, the rest around it",
    "greedy": "the paper's baseline: each task onto the tightest machine of the grid",
    "greedy-scan": "the same, by a look at every machine for every task, to compare times",
    "wase-whole": "each cluster into the closest LAN that takes it whole",
    "wase-far": "the same, going farther for a LAN that gives every task the affinity wanted",
    "wase-soft": "the same as wase-whole, going farther for a LAN whose links carry what the cluster exchanges",
    "wase-all": "both: affinity and links",
}


class InvalidMappingError(ValueError):
    """A question that makes no sense: an unknown method, clusters of another application, an option out of its
    range."""

    def for_user(self) -> str:
        """Return what is wrong and what to do."""
        return str(self)


class MappingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the methods. Valid once built.

    - ``lan_by_lan``: for ``wase``, the rest of a cluster goes to one LAN after the other of another MAN or WAN,
      instead of to all its machines together.
    - ``affinity_wanted``: for ``wase-far`` and ``wase-all``, the affinity that they look for.
    - ``mbit_s_per_rqoc``: for ``wase-soft`` and ``wase-all``, the bandwidth that an edge of RQoC 1 needs.
    """

    lan_by_lan: bool = False
    affinity_wanted: float = 2.0
    mbit_s_per_rqoc: float = 1.0

    def __post_init__(self) -> None:
        for name, number in (("affinity_wanted", self.affinity_wanted), ("mbit_s_per_rqoc", self.mbit_s_per_rqoc)):
            if not 0 < number < float("inf"):
                raise InvalidMappingError(f"{name} is {number}; write a number above 0")


def map_tasks(
    graph: TaskGraph,
    clusters: Sequence[Sequence[int]],
    dendrogram: Dendrogram,
    method: str = "wase",
    *,
    options: MappingOptions | None = None,
    user_lan: str | None = None,
    left: PowerLeft | None = None,
) -> TaskMapping | NoPlace:
    """Return a machine for every task, or which task or cluster found none and why. The same arguments give the same
    answer.

    ``clusters`` contains every task once. ``user_lan`` replaces the grid's own. ``left`` is what earlier applications
    have left of the same grid: a mapping takes what it needs from it, and a failed one leaves it unchanged. Raises
    ``InvalidMappingError``, and ``InvalidDendrogramError`` for an unknown LAN.
    """
    if method not in METHODS:
        raise InvalidMappingError(f"there is no method of mapping {method!r}; there are: {', '.join(METHODS)}")
    divided = tuple(tuple(cluster) for cluster in clusters)
    check_clusters(graph, divided)
    flat = dendrogram.flat
    start = flat.lan_of_name(dendrogram.user_lan if user_lan is None else user_lan)
    placing = Placing(graph, divided, PowerLeft(flat) if left is None else left)
    answer = _mapped(placing, SearchOrders(flat), start, method, options or MappingOptions())
    if isinstance(answer, NoPlace):
        placing.roll_back()
        return answer
    return placing.mapping(method, scarce=answer)


def _mapped(
    placing: Placing, orders: SearchOrders, user_lan: int, method: str, options: MappingOptions
) -> NoPlace | bool:
    """Place every task by this method; return whether they had to be packed tightly, or what found no place."""
    if method == "wase":
        return select_lans(placing, orders, user_lan, lan_by_lan=options.lan_by_lan) or False
    if method == "greedy":
        return map_greedily(placing) or False
    if method == "greedy-scan":
        return map_greedily_by_scan(placing) or False
    refused = map_whole(placing, orders, user_lan, _judge(placing, method, options), method)
    if refused is None:
        return False
    placing.roll_back()
    return map_scarcely(placing, orders, user_lan) or refused


def _judge(placing: Placing, method: str, options: MappingOptions) -> Judge:
    if method == "wase-whole":
        return Lenient()
    far = WantsAffinity(options.affinity_wanted)
    if method == "wase-far":
        return far
    soft = WantsBandwidth(placing.graph, placing.left.flat, options.mbit_s_per_rqoc)
    return soft if method == "wase-soft" else CombinedJudge(far, soft)


def map_greedily(placing: Placing) -> NoPlace | None:
    """Map by the baseline, which ignores clusters and LANs: each task, largest need first, goes onto the machine of
    the whole grid with the least sufficient power; ties by index. None means that all tasks have a machine."""
    left = placing.left
    by_size = powers_by_size(left, range(len(left.power)))
    for task in placing.by_need(range(len(placing.needs))):
        spot = best_fit(by_size, left, placing.needs[task])
        if spot is None:
            return _failed(placing, "greedy", task)
        placing.put(task, spot[0])
    _settle_homes(placing)
    return None


def map_greedily_by_scan(placing: Placing) -> NoPlace | None:
    """Do the same by looking at every machine for every task, as in the paper, to compare times."""
    power = placing.left.power
    for task in placing.by_need(range(len(placing.needs))):
        need = placing.needs[task]
        tightest = -1
        for machine, left in enumerate(power):
            if left >= need and (tightest < 0 or left < power[tightest]):
                tightest = machine
        if tightest < 0:
            return _failed(placing, "greedy-scan", task)
        placing.put(task, tightest)
    _settle_homes(placing)
    return None


def _settle_homes(placing: Placing) -> None:
    for cluster, tasks in enumerate(placing.clusters):
        placing.homes[cluster] = plurality_lan(placing.left.flat, [placing.machines[task] for task in tasks])


def _failed(placing: Placing, method: str, task: int) -> NoPlace:
    cluster = next(index for index, tasks in enumerate(placing.clusters) if task in tasks)
    return no_machine(placing, method, cluster, task)


def check_clusters(graph: TaskGraph, clusters: Sequence[Sequence[int]]) -> None:
    """Raise ``InvalidMappingError`` unless every task is in exactly one cluster, and no cluster is empty."""
    found: set[int] = set()
    for cluster in clusters:
        if not cluster:
            raise InvalidMappingError("a cluster has no task; leave it out")
        for task in cluster:
            if not 0 <= task < len(graph.names):
                raise InvalidMappingError(f"clusters: there is no task {task}; they end at {len(graph.names) - 1}")
            if task in found:
                raise InvalidMappingError(f"task {graph.names[task]} is in two clusters; leave it in one")
            found.add(task)
    for task, name in enumerate(graph.names):
        if task not in found:
            raise InvalidMappingError(f"task {name} is in no cluster; put it into one, or into one of its own")
