"""Random wide-area grids, nested evenly: WANs of MANs of LANs, with links to match. ``tiers`` makes those of Tiers.

All randomness comes from the ``Random`` that is passed in: the same state gives the same grid.
"""

from __future__ import annotations

from random import Random
from typing import TypeAlias, TypeVar

import msgspec

from koala.model.dendrogram import Dendrogram, Lan, Machine, Man, Wan

Range: TypeAlias = tuple[float, float]
Part = TypeVar("Part")


class GridShape(msgspec.Struct, frozen=True, kw_only=True):
    """The common properties of all grids of a study; values are drawn evenly from ranges.

    Powers are in MFlop/s. A MAN has ``lans_per_man`` LANs and a WAN ``mans_per_wan`` MANs; the last one has the rest.
    """

    power_mflop_s: Range = (600.0, 1300.0)
    load: Range = (0.1, 0.5)
    lans_per_man: int = 4
    mans_per_wan: int = 4
    lan_uplink_mbit_s: Range = (100.0, 1000.0)
    man_uplink_mbit_s: Range = (10.0, 155.0)
    wan_uplink_mbit_s: Range = (34.0, 622.0)

    def __post_init__(self) -> None:
        for name in ("power_mflop_s", "load", "lan_uplink_mbit_s", "man_uplink_mbit_s", "wan_uplink_mbit_s"):
            low, high = getattr(self, name)
            if not low <= high:
                raise ValueError(f"{name} from {low:g} to {high:g}: write the smaller number first")
        if self.lans_per_man < 1 or self.mans_per_wan < 1:
            raise ValueError("a MAN has at least one LAN, and a WAN at least one MAN")


SHAPE = GridShape()


def random_grid(machines: int, machines_per_lan: int, draws: Random, shape: GridShape = SHAPE) -> Dendrogram:
    """Return a grid of this many machines in LANs of one size, the rest in the last one, with its user in a random
    LAN.

    Raises ``ValueError`` for a grid without machines or with empty LANs.
    """
    if machines < 1 or machines_per_lan < 1:
        raise ValueError(f"{machines} machines in LANs of {machines_per_lan}: give at least 1 of each")
    lans = [
        _random_lan(number, min(machines_per_lan, machines - first), draws, shape)
        for number, first in enumerate(range(0, machines, machines_per_lan))
    ]
    mans = [
        Man(name=f"man{number}", lans=tuple(part), uplink_mbit_s=draws.uniform(*shape.man_uplink_mbit_s))
        for number, part in enumerate(_parts(lans, shape.lans_per_man))
    ]
    wans = [
        Wan(name=f"wan{number}", mans=tuple(part), uplink_mbit_s=draws.uniform(*shape.wan_uplink_mbit_s))
        for number, part in enumerate(_parts(mans, shape.mans_per_wan))
    ]
    return Dendrogram(wans=tuple(wans), user_lan=draws.choice(lans).name)


def _random_lan(number: int, machines: int, draws: Random, shape: GridShape) -> Lan:
    return Lan(
        name=f"lan{number}",
        machines=tuple(
            Machine(
                name=f"lan{number}-m{machine}",
                power=draws.uniform(*shape.power_mflop_s),
                load=draws.uniform(*shape.load),
            )
            for machine in range(machines)
        ),
        uplink_mbit_s=draws.uniform(*shape.lan_uplink_mbit_s),
    )


def _parts(things: list[Part], size: int) -> list[list[Part]]:
    return [things[first : first + size] for first in range(0, len(things), size)]
