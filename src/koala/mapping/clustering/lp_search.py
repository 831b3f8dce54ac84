"""Local search that also begins where the LP relaxation points: for graphs whose LP can be solved.

Where the LP's lengths are 0 and 1, as in most sparse graphs, they are the best clustering already; elsewhere they are
one more place to begin. The result comes with the LP's bound, and so with a proof of how far from the best it can be.
"""

from __future__ import annotations

from random import Random

from koala.mapping.clustering.correlation import SignedGraph, joined
from koala.mapping.clustering.local_search import local_search
from koala.mapping.clustering.lp import Relaxation

# Positive edges shorter than this are joined to begin with: once only the shortest, once the shorter half.
THRESHOLDS = (0.2, 0.5)


def lp_search(signed: SignedGraph, relaxation: Relaxation, draws: Random) -> list[int]:
    """Labels by task: the cheapest of ``local_search`` from its own beginning and from those of the LP, ties to the
    first. It never costs more than ``local_search`` with the same draws."""
    found = [local_search(signed, draws)]
    for threshold in THRESHOLDS:
        short = [(one, other) for one, other, _ in signed.positive if relaxation.distances[one, other] < threshold]
        found.append(local_search(signed, draws, start=joined(signed.tasks, short)))
    return min(found, key=signed.cost)
