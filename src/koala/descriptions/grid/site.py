"""The entry of one site in a grid file: its form, and the way to a Site.

How it is reached under a batch system is described in ``koala.descriptions.grid.batch``, how it behaves in a
simulation in ``koala.descriptions.grid.simulation``.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from koala.descriptions.fields import (
    Capacity,
    Description,
    Fraction01,
    FractionAboveZero,
    Name,
    Number,
    Processors,
    SecondsAboveZero,
    SomeText,
)
from koala.descriptions.grid.batch import BatchKeysText
from koala.descriptions.grid.simulation import SiteSimulationText
from koala.model.dendrogram import Machine
from koala.model.grid import NODE_POWER, NODES_NAMED_MAX, Site, SiteKind
from koala.model.quantities import QUANTITY_MAX, QUANTITY_MIN

Power = Annotated[Number, Field(ge=QUANTITY_MIN, le=QUANTITY_MAX)]

POWER_WORDS = "its nominal power, in MFlop/s"
LOAD_WORDS = "the part of it that others use now, from 0 to 1"


class MachineText(Description):
    """A machine, in a dendrogram as in a site of a grid."""

    power: Power = Field(description=POWER_WORDS)
    load: Fraction01 = Field(default=0.0, description=LOAD_WORDS)


class NodeText(MachineText):
    """One processor of a site, with a power of its own."""

    name: Name = Field(description="a name that no other node of the grid has")


class ClusterText(Description):
    """What every site has, whatever rules it."""

    processors: Processors = Field(
        description="how many processors the site has in all; under a batch system the most that Koala uses there"
    )
    kind: SiteKind = Field(default=SiteKind.SIMULATED, description="which batch system rules it")
    quota: FractionAboveZero = Field(
        default=1.0, description="the fraction of the site that may be in use before Koala takes no more of it"
    )
    file_server: SomeText | None = Field(
        default=None,
        description="a GridFTP server of the site and a directory that both it and Koala's account there may write, "
        "by its absolute path, such as ftp://fs.delft.example:2811/shared/koala; files go straight between two sites "
        "that both have one",
    )
    uplink_mbit_s: Capacity | None = Field(
        default=None, description="the capacity of its own link in the network; by default as the network says"
    )
    man: Name | None = Field(
        default=None, description="the region that it is in, for jobs of tasks; by default as the groups say"
    )
    wan: Name | None = Field(default=None, description="the wide area that its region is in, for jobs of tasks")
    nodes: Annotated[tuple[NodeText, ...], Field(max_length=NODES_NAMED_MAX)] = Field(
        default=(), description="those of its processors that have a power and a load of their own, for jobs of tasks"
    )
    node_power: Power = Field(default=NODE_POWER, description=f"of each other processor, {POWER_WORDS}")
    node_load: Fraction01 = Field(default=0.0, description=f"of each other processor, {LOAD_WORDS}")
    lost_after_s: SecondsAboveZero | None = Field(
        default=None, description="the scheduler's lost_after_s for this site alone; null is as for all"
    )
    own_account: bool | None = Field(
        default=None,
        description="whether jobs there run under another account than the daemon's, or where that one reaches "
        "nothing of the daemon; by default true for a site reached by ssh, and false for others that are live",
    )


class SiteText(BatchKeysText, ClusterText):
    """One cluster."""

    simulation: SiteSimulationText = Field(
        default=SiteSimulationText(), description="how the site behaves in a simulation"
    )

    def site(self, name: str) -> Site:
        """The site of that name; ``findings`` has found nothing."""
        return Site(
            name=name,
            processors=self.processors,
            kind=self.kind,
            quota=self.quota,
            file_server=self.file_server,
            uplink_mbit_s=self.uplink_mbit_s,
            man=self.man,
            wan=self.wan,
            nodes=tuple(Machine(**node.model_dump()) for node in self.nodes),
            node_power=self.node_power,
            node_load=self.node_load,
            batch=self.settings(name, self.kind),
            own_account=self.own_account,
            lost_after_s=self.lost_after_s,
            simulation=self.simulation.simulation(),
        )
