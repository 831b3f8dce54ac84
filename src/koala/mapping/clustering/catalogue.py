"""The interface of clustering: which tasks of an application belong together, by one of four methods.

``region-growing`` is the paper's method, with a proven guarantee; ``exact`` finds the optimum, for small graphs;
``local-search`` needs no extra library and handles graphs of any size; ``lp-search`` is local search helped by the
LP. The mapping decides where the clusters go.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from koala.mapping.clustering.correlation import SignedGraph, correlations, signed_graph
from koala.mapping.clustering.exact import exact
from koala.mapping.clustering.local_search import local_search, lp_search
from koala.mapping.clustering.lp import relaxed
from koala.mapping.clustering.region_growing import region_growing
from koala.model.task_graph import TaskGraph

# The methods that ``cluster`` has.
CLUSTERING_METHODS = ("region-growing", "exact", "local-search", "lp-search")
# Values of theta that are tried for a wanted cluster size: first by halving, then evenly over the range.
HALVINGS = 14
EVEN_STEPS = 16


class Clustering(msgspec.Struct, frozen=True, kw_only=True):
    """Every task in one cluster. Valid once built by ``cluster``.

    A cluster has its tasks by index, ascending; clusters are in the order of their first tasks. ``cost`` is the
    weight of positive edges between clusters and negative edges inside. ``lp_bound`` is a lower bound of every
    clustering's cost, where the method computes one.
    """

    clusters: tuple[tuple[int, ...], ...]
    cost: float
    lp_bound: float | None
    theta: float
    method: str

    @property
    def mean_size(self) -> float:
        """The mean number of tasks in a cluster."""
        return sum(map(len, self.clusters)) / len(self.clusters)


class UnknownMethodError(ValueError):
    """No method of clustering has this name."""

    def __init__(self, method: str) -> None:
        super().__init__(f"there is no method of clustering {method!r}")

    def for_user(self) -> str:
        """The name, and those there are."""
        return f"{self}; there are: {', '.join(CLUSTERING_METHODS)}"


class ClusterSizeError(ValueError):
    """No theta gave clusters of the given mean size. ``nearest`` is the clustering that came nearest to it."""

    def __init__(self, wanted: tuple[float, float], nearest: Clustering) -> None:
        super().__init__(
            f"no value of theta gives clusters of {wanted[0]:g} to {wanted[1]:g} tasks on average by the method "
            f"{nearest.method}; theta {nearest.theta:.4f} comes nearest, with {nearest.mean_size:.2f}"
        )
        self.wanted = wanted
        self.nearest = nearest

    def for_user(self) -> str:
        """Return what was asked for, what comes nearest, and what to do."""
        return f"{self}; ask for a range that has it, take another method or give theta itself"


def cluster(
    graph: TaskGraph,
    method: str = "region-growing",
    *,
    theta: float | None = None,
    cluster_size: tuple[float, float] | None = None,
    seed: int = 0,
) -> Clustering:
    """Cluster the tasks at ``theta`` (by default 0), or at a theta that gives clusters of a mean size in the range
    ``cluster_size``, both ends included. The same arguments give the same clusters.

    Raises ``UnknownMethodError``, ``ClusterSizeError`` if no theta gives the size, ``TooHardError`` if ``exact``
    gives up, and ``MissingLibraryError`` if the method needs the extra ``mapping``.
    """
    if method not in CLUSTERING_METHODS:
        raise UnknownMethodError(method)
    if cluster_size is None:
        return _clustered(graph, method, theta or 0.0, seed)
    if theta is not None:
        raise ValueError("give theta or cluster_size, not both")
    low, high = cluster_size
    if not 1 <= low <= high:
        raise ValueError(f"cluster_size {low:g}-{high:g}: write two numbers from 1 on, the smaller one first")
    return _of_size(graph, method, (low, high), seed)


def _clustered(graph: TaskGraph, method: str, theta: float, seed: int) -> Clustering:
    signed = signed_graph(graph, theta)
    draws = Random(seed)
    bound: float | None = None
    if method in ("region-growing", "lp-search"):
        relaxation = relaxed(signed)
        bound = relaxation.bound
        labels = (region_growing if method == "region-growing" else lp_search)(signed, relaxation, draws)
    elif method == "exact":
        labels, bound = exact(signed, draws)
    else:
        labels = local_search(signed, draws)
    return _clustering(signed, labels, method, theta, bound)


def _clustering(
    signed: SignedGraph, labels: Sequence[int], method: str, theta: float, bound: float | None
) -> Clustering:
    members: dict[int, list[int]] = {}
    for task, label in enumerate(labels):
        members.setdefault(label, []).append(task)
    return Clustering(
        clusters=tuple(map(tuple, members.values())),
        cost=signed.cost(labels),
        lp_bound=bound,
        theta=theta,
        method=method,
    )


def _of_size(graph: TaskGraph, method: str, wanted: tuple[float, float], seed: int) -> Clustering:
    """Halve the range of theta, because larger thetas usually give larger clusters; then try evenly spread values,
    because they do not always.

    Outside the range all edges have the same sign, and nothing changes any more.
    """
    weights = correlations(graph) or (0.0,)
    low, high = -max(weights) - 1.0, -min(weights) + 1.0
    evenly = [low + (high - low) * step / EVEN_STEPS for step in range(EVEN_STEPS + 1)]
    nearest: Clustering | None = None
    for halving in range(HALVINGS + len(evenly)):
        theta = (low + high) / 2 if halving < HALVINGS else evenly[halving - HALVINGS]
        found = _clustered(graph, method, theta, seed)
        if _misses(found, wanted) == 0:
            return found
        if nearest is None or abs(_misses(found, wanted)) < abs(_misses(nearest, wanted)):
            nearest = found
        if _misses(found, wanted) < 0:
            low = theta
        else:
            high = theta
    assert nearest is not None, "some value was tried"
    raise ClusterSizeError(wanted, nearest)


def _misses(found: Clustering, wanted: tuple[float, float]) -> float:
    """Return how many tasks the mean size is below the range, as a negative number, or above it; 0 inside."""
    return min(found.mean_size - wanted[0], 0.0) or max(found.mean_size - wanted[1], 0.0)
