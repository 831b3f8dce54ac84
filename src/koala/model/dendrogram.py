"""The grid as WASE sees it: machines in LANs, LANs in MANs, MANs in WANs, and the bandwidth of every uplink.

Frozen values, valid once built, and the same grid as flat lists for the search: there the machines and LANs below any
node form a range. ``power_left`` holds what tasks have taken of the machines. Reading a grid from text is not done
here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

import msgspec

from koala.model.task_graph import quantity_advice

MACHINES_MAX = 1_000_000

# Levels of the tree; a node's brothers have the same father, and all WANs are brothers below the root.
LAN, MAN, WAN = range(3)
LEVELS = ("LAN", "MAN", "WAN")
BEYOND = 3


class InvalidDendrogramError(ValueError):
    """A grid that contradicts itself. ``part`` names the node; the message says what to write."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(f"{part}: {message}")
        self.part = part
        self.message = message

    def for_user(self) -> str:
        """Return the part, what is wrong with it and what to do."""
        return str(self)


class Machine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A machine with its nominal power (MFlop/s) and the fraction of it, from 0 to 1, that others use now."""

    name: str
    power: float
    load: float = 0.0

    def __post_init__(self) -> None:
        advice = quantity_advice(self.power)
        if advice is not None:
            self._refuse(f"its power is {self.power}; {advice}")
        if not 0 <= self.load <= 1:
            self._refuse(f"its load is {self.load}; write a number from 0 to 1")

    def _refuse(self, message: str) -> NoReturn:
        raise InvalidDendrogramError(f"machine {self.name}", message)

    @property
    def current_power(self) -> float:
        """The power that a new task can have."""
        return self.power * (1 - self.load)


class Lan(msgspec.Struct, frozen=True, kw_only=True):
    """Machines with fast links to each other and one uplink to the rest of their MAN. A LAN may be empty."""

    name: str
    machines: tuple[Machine, ...]
    uplink_mbit_s: float = math.inf

    def __post_init__(self) -> None:
        _check_uplink(LAN, self.name, self.uplink_mbit_s)


class Man(msgspec.Struct, frozen=True, kw_only=True):
    """LANs of one region, with an uplink to the rest of their WAN."""

    name: str
    lans: tuple[Lan, ...]
    uplink_mbit_s: float = math.inf

    def __post_init__(self) -> None:
        _check_uplink(MAN, self.name, self.uplink_mbit_s)


class Wan(msgspec.Struct, frozen=True, kw_only=True):
    """MANs of one wide area, with an uplink to the other WANs."""

    name: str
    mans: tuple[Man, ...]
    uplink_mbit_s: float = math.inf

    def __post_init__(self) -> None:
        _check_uplink(WAN, self.name, self.uplink_mbit_s)


class Dendrogram(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The whole grid, and the LAN of its user. Valid once built.

    Names of machines and LANs are unique in the whole grid, because mappings use them alone; names of MANs are unique
    in their WAN.
    """

    wans: tuple[Wan, ...]
    user_lan: str

    def __post_init__(self) -> None:
        _check_names("WAN", "the grid", (wan.name for wan in self.wans))
        for wan in self.wans:
            _check_names("MAN", f"WAN {wan.name}", (man.name for man in wan.mans))
        lans = [lan for wan in self.wans for man in wan.mans for lan in man.lans]
        _check_names("LAN", "the grid", (lan.name for lan in lans))
        machines = sum(len(lan.machines) for lan in lans)
        if machines > MACHINES_MAX:
            raise InvalidDendrogramError("machines", f"{machines} are more than {MACHINES_MAX} (MACHINES_MAX)")
        _check_names("machine", "the grid", (machine.name for lan in lans for machine in lan.machines))
        self.flat.lan_of_name(self.user_lan)

    @cached_property
    def flat(self) -> FlatGrid:
        """The grid as flat lists, made once."""
        return _flattened(self.wans)

    @property
    def machine_count(self) -> int:
        """The number of machines in the whole grid."""
        return len(self.flat.power)


@dataclass(frozen=True, slots=True)
class Level:
    """All nodes of one kind, by index: nodes of one father are adjacent, in their given order."""

    names: list[str] = field(default_factory=list)
    uplink_mbit_s: list[float] = field(default_factory=list)
    father: list[int] = field(default_factory=list)
    # The nodes of the level below, or the machines of a LAN; and the LANs below.
    sons: list[range] = field(default_factory=list)
    lans: list[range] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FlatGrid:
    """Machines, LANs, MANs and WANs by index. Nothing here changes once it is built.

    ``power`` is the current power of a machine before any task is placed; ``lan_best`` is the largest power in each
    LAN, 0 for an empty one.
    """

    machine_names: list[str] = field(default_factory=list)
    power: list[float] = field(default_factory=list)
    machine_lan: list[int] = field(default_factory=list)
    lan_best: list[float] = field(default_factory=list)
    levels: tuple[Level, Level, Level] = field(default_factory=lambda: (Level(), Level(), Level()))
    lan_index: dict[str, int] = field(default_factory=dict)

    def lan_of_name(self, name: str) -> int:
        """Return the index of a LAN. Raises ``InvalidDendrogramError`` if no LAN has this name."""
        found = self.lan_index.get(name)
        if found is None:
            raise InvalidDendrogramError("user_lan", f"there is no LAN {name!r}; name one of the grid")
        return found

    def brothers(self, level: int, node: int) -> range:
        """Return the nodes with the same father, including the node itself."""
        if level == WAN:
            return range(len(self.levels[WAN].names))
        return self.levels[level + 1].sons[self.levels[level].father[node]]

    def distance(self, one: int, other: int) -> int:
        """Return how far apart two LANs are: 0 for the same LAN, 1 in one MAN, 2 in one WAN, 3 beyond."""
        for level in (LAN, MAN, WAN):
            if one == other:
                return level
            one, other = self.levels[level].father[one], self.levels[level].father[other]
        return BEYOND


def _flattened(wans: Sequence[Wan]) -> FlatGrid:
    flat = FlatGrid()
    lan_level, man_level, wan_level = flat.levels
    for wan_index, wan in enumerate(wans):
        for man in wan.mans:
            man_index = len(man_level.names)
            for lan in man.lans:
                _add_lan(flat, lan, man_index)
            _add_node(man_level, man.name, man.uplink_mbit_s, wan_index, len(man.lans))
            man_level.lans.append(man_level.sons[-1])
        _add_node(wan_level, wan.name, wan.uplink_mbit_s, 0, len(wan.mans))
        end = len(lan_level.names)
        wan_level.lans.append(range(end - sum(len(man.lans) for man in wan.mans), end))
    return flat


def _add_lan(flat: FlatGrid, lan: Lan, man: int) -> None:
    level = flat.levels[LAN]
    index = len(level.names)
    powers = [machine.power * (1 - machine.load) for machine in lan.machines]
    flat.lan_index[lan.name] = index
    flat.lan_best.append(max(powers, default=0.0))
    flat.power.extend(powers)
    flat.machine_names.extend(machine.name for machine in lan.machines)
    flat.machine_lan.extend([index] * len(powers))
    _add_node(level, lan.name, lan.uplink_mbit_s, man, len(powers))
    level.lans.append(range(index, index + 1))


def _add_node(level: Level, name: str, uplink_mbit_s: float, father: int, sons: int) -> None:
    first = level.sons[-1].stop if level.sons else 0
    level.names.append(name)
    level.uplink_mbit_s.append(uplink_mbit_s)
    level.father.append(father)
    level.sons.append(range(first, first + sons))


def _check_uplink(level: int, name: str, uplink_mbit_s: float) -> None:
    if not uplink_mbit_s > 0:
        raise InvalidDendrogramError(
            f"{LEVELS[level]} {name}", f"its uplink_mbit_s is {uplink_mbit_s}; write a number above 0"
        )


def _check_names(kind: str, place: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if not name:
            raise InvalidDendrogramError(place, f"a {kind} in it has an empty name; give it one")
        if count > 1:
            raise InvalidDendrogramError(f"{kind} {name}", f"{count} in {place} have this name; give each its own")
