"""The grids of the mapping study: as Tiers generates them, with variable loads, or evenly nested with constant loads.

A grid depends on the seed and its size alone; its use by others depends also on the time of a mapping, which is drawn
for each graph.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

from koala.mapping import GridShape, LoadModel, TiersGrid, TiersParameters, TiersShape, random_grid
from koala.model.dendrogram import Dendrogram
from koala_papers.wase.parameters import NESTED, WaseParameters

# Applications are mapped at any time of a day.
DAY_S = 86_400.0


def lans_per_man(parameters: WaseParameters, lans: int, draws: Random) -> int:
    """Return the number of LANs in each MAN: drawn from the divisors of the number of LANs, or all in one MAN."""
    return draws.choice([each for each in parameters.lans_per_man if lans % each == 0] or [lans])


# A process maps many graphs on the grids of one seed.
@lru_cache(maxsize=32)
def tiers_grid_of(parameters: WaseParameters, seed: int, machines: int, per_lan: int) -> TiersGrid:
    """Return a grid of the study over the whole day."""
    draws = Random(f"tiers {seed} {machines} {per_lan}")
    lans = -(-machines // per_lan)
    each = lans_per_man(parameters, lans, draws)
    model = LoadModel(mean=parameters.load, deviation=parameters.load_deviation)
    shape = TiersShape(machine_load=model, link_load=model)
    return TiersGrid(TiersParameters(mans=lans // each, lans_per_man=each, lan_hosts=per_lan), draws, shape)


@lru_cache(maxsize=32)
def grid_of(parameters: WaseParameters, seed: int, sizes: tuple[int, int], graph: tuple[int, int]) -> Dendrogram:
    """Return the grid of this many machines in LANs of a size, at the time when that graph, by tasks and number, is
    mapped."""
    machines, per_lan = sizes
    if parameters.topology == NESTED:
        draws = Random(f"grid {seed} {machines} {per_lan}")
        return random_grid(machines, per_lan, draws, GridShape(load=parameters.load))
    tasks, number = graph
    time_s = Random(f"time {seed} {tasks} {number}").uniform(0.0, DAY_S)
    return tiers_grid_of(parameters, seed, machines, per_lan).at(time_s)
