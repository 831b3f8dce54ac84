"""Grids for the mapping of tasks in YAML: machines in LANs, MANs and WANs, and the way to a Dendrogram.

``read_machines`` is the one loader: it also reads a grid file of the scheduler, whose sites are LANs. Machines that
are all alike are written once, with their count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from koala.descriptions.errors import Problem, refuse_any, shown
from koala.descriptions.fields import Capacity, Count, Description, Name, schema_of
from koala.descriptions.grid.form import read_grid_yaml
from koala.descriptions.grid.site import MachineText
from koala.descriptions.yaml.nodes import LARGE, compose
from koala.descriptions.yaml.problems import nearest
from koala.descriptions.yaml.text import Document, read_composed
from koala.mapping.site_lans import dendrogram_of
from koala.model.dendrogram import MACHINES_MAX, Dendrogram, Lan, Machine, Man, Wan

UPLINK_WORDS = "the bandwidth to the others of its kind, in megabits per second; null is unlimited"


class MachinesText(MachineText):
    """A machine, or as many equal ones as its count says."""

    count: Annotated[Count, Field(le=MACHINES_MAX)] | None = Field(
        default=None, description="so many machines, all alike: those of m are called m/1, m/2 and so on"
    )

    def machines(self, name: str) -> Iterator[Machine]:
        """Yield values of ``koala.mapping``. No name in a file has a slash, so these names are unique."""
        names = [name] if self.count is None else (f"{name}/{number}" for number in range(1, self.count + 1))
        for each in names:
            yield Machine(name=each, power=self.power, load=self.load)


class LanText(Description):
    """Machines that reach each other fast."""

    uplink_mbit_s: Capacity | None = Field(default=None, description=UPLINK_WORDS)
    machines: dict[Name, MachinesText] = Field(
        default={}, description="its machines by name; a name is used once in the whole grid"
    )

    def lan(self, name: str) -> Lan:
        """Return the LAN as a value of ``koala.mapping``."""
        machines = tuple(machine for each, text in self.machines.items() for machine in text.machines(each))
        return Lan(name=name, machines=machines, uplink_mbit_s=_uplink(self.uplink_mbit_s))


class ManText(Description):
    """LANs of one region."""

    uplink_mbit_s: Capacity | None = Field(default=None, description=UPLINK_WORDS)
    lans: Annotated[dict[Name, LanText], Field(min_length=1)] = Field(
        description="its LANs by name; a name is used once in the whole grid"
    )


class WanText(Description):
    """MANs of one wide area."""

    uplink_mbit_s: Capacity | None = Field(default=None, description=UPLINK_WORDS)
    mans: Annotated[dict[Name, ManText], Field(min_length=1)] = Field(description="its MANs by name")


class DendrogramText(Description):
    """A grid as the mapping of tasks sees it."""

    user_lan: Name | None = Field(
        default=None, description="the LAN that the user sits in, where the search begins; by default the first"
    )
    wans: Annotated[dict[Name, WanText], Field(min_length=1)] = Field(
        description="its wide areas by name, or 'sites' where this is a grid file of the scheduler"
    )

    def dendrogram(self) -> Dendrogram:
        """Return the grid as a value of ``koala.mapping``."""
        wans = tuple(
            Wan(
                name=name,
                mans=tuple(_man(each, man) for each, man in wan.mans.items()),
                uplink_mbit_s=_uplink(wan.uplink_mbit_s),
            )
            for name, wan in self.wans.items()
        )
        return Dendrogram(wans=wans, user_lan=self.user_lan or wans[0].mans[0].lans[0].name)


def read_machines(text: str, source: str) -> Dendrogram:
    """Return the machines that a YAML text describes, by WANs, MANs and LANs, or as the sites of a
    scheduler's grid file.

    Raises DescriptionError with all problems if it is invalid.
    """
    composed = compose(text, source, LARGE)
    root = composed.root.content
    if isinstance(root, dict) and "sites" in root and "wans" not in root:
        return dendrogram_of(read_grid_yaml(text, source))
    document = read_composed(composed, DendrogramText)
    refuse_any(source, _contradictions(document))
    return document.model.dendrogram()


def _man(name: str, man: ManText) -> Man:
    return Man(
        name=name,
        lans=tuple(lan.lan(each) for each, lan in man.lans.items()),
        uplink_mbit_s=_uplink(man.uplink_mbit_s),
    )


def _uplink(mbit_s: float | None) -> float:
    return float("inf") if mbit_s is None else mbit_s


def _contradictions(document: Document[DendrogramText]) -> Iterator[Problem]:
    """Yield problems with repeated names, a missing user's LAN, and too many machines."""
    grid = document.model
    lans: dict[str, str] = {}
    machines: dict[str, str] = {}
    count = 0
    for wan_name, wan in grid.wans.items():
        for man_name, man in wan.mans.items():
            for name, lan in man.lans.items():
                path = ("wans", wan_name, "mans", man_name, "lans", name)
                yield from _twice(document, path, "LAN", f"the MAN {man_name} of {wan_name}", lans)
                for machine, text in lan.machines.items():
                    count += text.count or 1
                    yield from _twice(document, (*path, "machines", machine), "machine", f"the LAN {name}", machines)
    if count > MACHINES_MAX:
        yield document.problem(
            ("wans",), f"{count} machines are more than {MACHINES_MAX} (MACHINES_MAX)", "describe fewer", at_key=True
        )
    if grid.user_lan is not None and grid.user_lan not in lans:
        yield document.problem(
            ("user_lan",), f"there is no LAN {shown(grid.user_lan)}", nearest(grid.user_lan, list(lans))
        )


def _twice(
    document: Document[DendrogramText], path: tuple[str, ...], kind: str, place: str, seen: dict[str, str]
) -> Iterator[Problem]:
    name = path[-1]
    if name in seen:
        yield document.problem(
            path,
            f"there is a {kind} {shown(name)} in {seen[name]} already",
            f"give it another name; each {kind} has its own in the whole grid",
            at_key=True,
        )
    seen.setdefault(name, place)


def dendrogram_schema() -> dict[str, Any]:
    """Return the JSON schema of a file of machines in LANs, MANs and WANs."""
    return schema_of(DendrogramText, "Koala dendrogram")
