"""``python benchmarks/clustering.py``: how fast clustering is, and how near to the best, on random task graphs.

The LP with lazily added constraints stands beside the LP over all pairs and triangles, which must give the same
bound; local search stands beside the bound and, where branch and cut proves one in time, the best cost. Times are
processor times, the least of a few runs, since whatever else the machine does can only make a run slower.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from koala.mapping.clustering.correlation import SignedGraph, signed_graph
from koala.mapping.clustering.exact import TooHardError, exact
from koala.mapping.clustering.local_search import local_search, lp_search
from koala.mapping.clustering.lp import relaxed
from koala.mapping.clustering.region_growing import region_growing

sys.path.append(str(Path(__file__).parents[1]))

from tests.support.naive_clustering import naive_lp_bound, random_graph

ROUNDS = 3
LP_SIZES = ((16, 3), (24, 3), (32, 3), (32, 8), (48, 3), (64, 8), (128, 1.5), (128, 3), (128, 8))
LARGE = ((1000, 3, 0.0), (1000, 8, -1.0), (1000, 8, 0.0), (1000, 8, 1.0), (10_000, 8, -1.0))
SEEDS = (101, 102, 103)
BRANCHES_MAX = 150
# 128 tasks have a million triangle inequalities; with more tasks than this the wait is not worth it.
NAIVE_TASKS_MAX = 48

T = TypeVar("T")


def timed(work: Callable[[], T], rounds: int = ROUNDS) -> tuple[T, float]:
    """What the work gives, and the least time that it took, in seconds."""
    least_s = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        result = work()
        least_s = min(least_s, time.process_time() - before)
    return result, least_s


def case(tasks: int, edges_per_task: float, seed: int, theta: float = 0.0) -> SignedGraph:
    return signed_graph(random_graph(tasks, int(edges_per_task * tasks), seed), theta)


def lp_beside_naive(console: Console) -> None:
    table = Table(title="The LP, with constraints added where violated, beside all triangles at once", box=None)
    for column in ("tasks", "edges", "bound", "lazily s", "all triangles s"):
        table.add_column(column, justify="right")
    for tasks, edges_per_task in LP_SIZES:
        signed = case(tasks, edges_per_task, SEEDS[0])
        relaxation, fast_s = timed(lambda signed=signed: relaxed(signed))  # type: ignore[misc]
        slow = "-"
        if tasks <= NAIVE_TASKS_MAX:
            bound, slow_s = timed(lambda signed=signed: naive_lp_bound(signed), rounds=1)  # type: ignore[misc]
            if abs(bound - relaxation.bound) > 1e-4:
                raise SystemExit(f"{tasks} tasks: the bounds {relaxation.bound} and {bound} differ")
            slow = f"{slow_s:.3f}"
        edges = len(signed.positive) + len(signed.negative)
        table.add_row(str(tasks), str(edges), f"{relaxation.bound:.3f}", f"{fast_s:.3f}", slow)
    console.print(table)


def best_cost(signed: SignedGraph) -> float | None:
    try:
        return signed.cost(exact(signed, Random(1), BRANCHES_MAX).labels)
    except TooHardError:
        return None


def gap(cost: float, least: float | None) -> str:
    """By how much the cost is above the least, in percent."""
    if least is None:
        return "-"
    return f"{100 * (cost / least - 1):.1f} %" if least > 1e-6 else f"+{cost:.3f}"


def costs(console: Console) -> None:
    table = Table(title="Costs: the LP's bound, the best proven, region growing, local search", box=None)
    for column in ("tasks", "edges", "theta", "seed", "bound", "best", "growing", "search", "lp-search", "search s"):
        table.add_column(column, justify="right")
    for column in ("search above bound", "lp-search above bound", "search above best", "best above bound"):
        table.add_column(column, justify="right")
    sizes = ((32, 1.5), (32, 3), (64, 1.5), (64, 3), (128, 1.5), (128, 3), (128, 8), (256, 1.5), (512, 1.5))
    for tasks, edges_per_task in sizes:
        for theta in (-0.7, 0.0, 0.7):
            for seed in SEEDS:
                signed = case(tasks, edges_per_task, seed, theta)
                relaxation = relaxed(signed)
                best = best_cost(signed) if edges_per_task < 8 else None
                grown = signed.cost(region_growing(signed, relaxation, Random(seed)))
                labels, search_s = timed(lambda signed=signed: local_search(signed, Random(1)), 1)  # type: ignore[misc]
                found = signed.cost(labels)
                helped = signed.cost(lp_search(signed, relaxation, Random(1)))
                figures = [relaxation.bound, best, grown, found, helped]
                table.add_row(
                    str(tasks),
                    str(int(tasks * edges_per_task)),
                    f"{theta:g}",
                    str(seed),
                    *("-" if figure is None else f"{figure:.3f}" for figure in figures),
                    f"{search_s:.2f}",
                    gap(found, relaxation.bound),
                    gap(helped, relaxation.bound),
                    gap(found, best),
                    "-" if best is None else gap(best, relaxation.bound),
                )
    console.print(table)


def large(console: Console) -> None:
    table = Table(title="Local search on large graphs", box=None)
    for column in ("tasks", "edges", "theta", "cost", "clusters", "s"):
        table.add_column(column, justify="right")
    for tasks, edges_per_task, theta in LARGE:
        signed = case(tasks, edges_per_task, SEEDS[0], theta)
        labels, least_s = timed(lambda signed=signed: local_search(signed, Random(1)))  # type: ignore[misc]
        edges = str(int(tasks * edges_per_task))
        cost = f"{signed.cost(labels):.3f}"
        table.add_row(str(tasks), edges, f"{theta:g}", cost, str(len(set(labels))), f"{least_s:.2f}")
    console.print(table)


if __name__ == "__main__":
    terminal = Console(width=140)
    lp_beside_naive(terminal)
    large(terminal)
    costs(terminal)
