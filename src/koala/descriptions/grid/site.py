"""The entry of one site in a grid file: its form, and the way to a Site.

``koala.descriptions.grid.batch`` describes the access to a batch system, ``koala.descriptions.grid.simulation`` the
behaviour in a simulation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from koala.descriptions.fields import (
    Capacity,
    Count,
    Description,
    Fraction01,
    FractionAboveZero,
    LicenseCounts,
    Memory,
    Name,
    Number,
    Processors,
    SecondsAboveZero,
    SomeText,
)
from koala.descriptions.grid.batch import BatchKeysText
from koala.descriptions.grid.simulation import SiteSimulationText
from koala.model.dendrogram import Machine
from koala.model.grid import NODE_POWER, NODES_NAMED_MAX, Containers, ContainerTool, Site, SiteKind
from koala.model.nodes import GPU_KIND_PATTERN, NODE_CLASSES_MAX, TASK_GPUS_MAX, UNTOLD, NodeClass, NodeSize
from koala.model.task_graph import QUANTITY_MAX, QUANTITY_MIN
from koala.sites.batch.systems import SYSTEMS

# A site names at most this many programs that it provides.
PROVIDED_MAX = 1_000

if TYPE_CHECKING:
    Kind: TypeAlias = str
else:
    Kind = Literal[*(str(each) for each in SiteKind), *SYSTEMS]

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


Gpus = Annotated[int, Field(strict=True, ge=0, le=TASK_GPUS_MAX)]
GpuKind = Annotated[str, Field(pattern=GPU_KIND_PATTERN, max_length=255)]
Features = Annotated[tuple[Name, ...], Field(max_length=1_000)]


class NodeKeysText(Description):
    """What nodes have beside processors."""

    memory: Memory | None = Field(default=None, description="memory of a node that tasks may have, such as 64G")
    gpus: Gpus = Field(default=0, description="GPUs of a node")
    gpu: GpuKind | None = Field(default=None, description="the kind of its GPUs, such as a100")
    features: Features = Field(default=(), description="features of a node that constraints of tasks may name")

    def node_class(self, count: int, processors: int) -> NodeClass:
        """Return this many such nodes, with ``processors`` each."""
        gpus = ((self.gpu or "", self.gpus),) if self.gpus else ()
        size = NodeSize(processors, UNTOLD if self.memory is None else self.memory, gpus)
        return NodeClass(count, size, size, tuple(sorted(set(self.features))))


class NodeClassText(NodeKeysText):
    """Nodes of a site that are alike."""

    count: Count = Field(default=1, description="how many such nodes there are")
    processors: Processors = Field(description="processors of each")


class ContainersText(Description):
    """How a site runs container images."""

    tool: ContainerTool = Field(description="what starts a program in an image there")
    images: SomeText | None = Field(
        default=None,
        description="the directory of the images there, by its absolute path, or with podman what stands before "
        "their names; an image that a job names by a path or an address is taken as it is",
    )


def _by_tool(value: Any) -> Any:
    """Read a tool alone as short for a mapping with it."""
    return {"tool": value} if isinstance(value, str) else value


class ClusterText(Description):
    """What every site has, whatever rules it."""

    processors: Processors = Field(
        description="how many processors the site has in all; under a batch system the most that Koala uses there"
    )
    kind: Kind = Field(default=str(SiteKind.SIMULATED), description="which batch system rules it")
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
    node_classes: Annotated[tuple[NodeClassText, ...], Field(max_length=NODE_CLASSES_MAX)] = Field(
        default=(),
        description="the nodes of a simulated site, by class, where they are more than one; all its processors",
    )
    lost_after_s: SecondsAboveZero | None = Field(
        default=None, description="the scheduler's lost_after_s for this site alone; null is as for all"
    )
    containers: (
        Annotated[ContainersText, BeforeValidator(_by_tool, json_schema_input_type=ContainerTool | ContainersText)]
        | None
    ) = Field(
        default=None,
        description="with what the site runs container images, or that and where the images are; by default it runs "
        "none, and jobs with an image do not go there",
    )
    provides: Annotated[tuple[Name, ...], Field(max_length=PROVIDED_MAX)] = Field(
        default=(),
        description="programs that jobs may require and that are found there beside those of its batch system (srun, "
        "qrsh), such as [ibrun, matlab]; a job that requires another does not go there",
    )
    licenses: LicenseCounts = Field(
        default={},
        description="its pools of floating licences, by the names that its batch system has for them: how many of "
        "each there are, such as {ansys: 4}",
    )
    probes: bool = Field(default=True, description="whether its links to other sites may be probed")
    own_account: bool | None = Field(
        default=None,
        description="whether jobs there run under another account than the daemon's, or where that one reaches "
        "nothing of the daemon; by default true for a site reached by ssh, and false for others that are live",
    )


class SiteText(BatchKeysText, NodeKeysText, ClusterText):
    """One cluster."""

    simulation: SiteSimulationText = Field(
        default=SiteSimulationText(), description="how the site behaves in a simulation"
    )

    @property
    def has_own_gpus(self) -> bool:
        """True if it assigns GPUs of the daemon's own machine."""
        return self.kind == SiteKind.LOCAL and self.gpus > 0

    def node_findings(self) -> Iterator[tuple[str, str, str]]:
        """Yield the problems of the node keys: key, message, advice."""
        single = [key for key in NodeKeysText.model_fields if key in self.model_fields_set and getattr(self, key)]
        if self.kind in SYSTEMS:
            for key in [*single, *(["node_classes"] if self.node_classes else [])]:
                said = f"'{key}' is not for sites under a batch system, which tells of its nodes itself"
                yield key, said, "take it out"
            return
        if self.gpu is not None and not self.gpus:
            yield "gpu", f"it names the kind {self.gpu} and no GPUs", "write gpus: 1 or more, or leave the kind out"
        if not self.node_classes:
            return
        if single:
            both = f"node_classes and {' and '.join(single)} are given together"
            yield single[0], both, f"write {' and '.join(single)} of each class instead"
        if self.kind == SiteKind.LOCAL:
            yield "node_classes", "an embedded site is one machine", "write memory, gpus and gpu of the site instead"
        together = sum(each.count * each.processors for each in self.node_classes)
        if together != self.processors:
            said = f"the nodes have {together} processors together, and the site has {self.processors}"
            yield "node_classes", said, "let the two agree"
        if self.simulation.faults.bad_nodes:
            yield "node_classes", "a site with bad_nodes has nodes of node_processors each", "keep one of the two"

    def _node_classes(self) -> tuple[NodeClass, ...]:
        if self.node_classes:
            return tuple(each.node_class(each.count, each.processors) for each in self.node_classes)
        said = self.memory is not None or self.gpus or self.features
        return (self.node_class(1, self.processors),) if said else ()

    def site(self, name: str) -> Site:
        """Return the site of that name. Requires that ``findings`` found nothing."""
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
            node_classes=self._node_classes(),
            batch=self.settings(name, self.kind),
            containers=None if self.containers is None else Containers(**self.containers.model_dump()),
            provides=tuple(
                dict.fromkeys((*(SYSTEMS[self.kind].programs if self.kind in SYSTEMS else ()), *self.provides))
            ),
            licenses=tuple(sorted(self.licenses.items())),
            own_account=self.own_account,
            lost_after_s=self.lost_after_s,
            probes=self.probes,
            simulation=self.simulation.simulation(),
        )
