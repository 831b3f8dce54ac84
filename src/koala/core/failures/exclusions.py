"""The nodes that components are kept off, and the sites that are closed to a job because of that.

A component is kept off nodes where its own job failed with a sign of the node, and off nodes that failed its program
while it succeeded elsewhere (``koala.core.failures.blame``). A site with too few other nodes for a component is
closed to its job: nothing is placed or claimed there while there is another way. Otherwise the component may run on
all nodes of the site.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from koala.core.failures.program import program_of
from koala.core.life.component import ComponentClaim
from koala.core.life.job import Job
from koala.core.state.blame import NodeAccusation
from koala.core.state.ledger import Ledger
from koala.core.state.nodes.pools import PLAIN
from koala.model.facts import NodesAllowed
from koala.model.nodes import EXCLUDED_NODES_MAX, TaskShape, places_of
from koala.model.request import Component, SiteName


class Exclusion(NamedTuple):
    """A node that a program is kept off until a given time, and the accusation behind it.

    ``closes`` is True if no node of the site is left for the program.
    """

    accusation: NodeAccusation
    until: float
    closes: bool

    @property
    def reason(self) -> str:
        """How the program failed there, and why that is the node's fault."""
        return f"{self.accusation.what} (job {self.accusation.job}), and it did well elsewhere"


class NodeExclusions:
    """The evidence against nodes, by the components that it concerns."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @property
    def some(self) -> bool:
        """True if some accusation against nodes concerns more than one job."""
        return bool(self.ledger.sites.node_accused)

    def nodes(self, job: Job, part: int, index: int, *, own: bool = True) -> dict[str, float]:
        """Return the nodes of the site that this component is kept off, each with its end, the latest failures last.

        Without ``own``, only the proved nodes are returned.
        """
        ledger = self.ledger
        sites, now, avoid_s = ledger.sites, ledger.now, ledger.parameters.avoid_failed_s
        failed = job.failed_nodes.get(ledger.names[index]) if own else None
        if failed is None and index not in sites.node_accused:
            return {}
        nodes: dict[str, float] = {}
        if index in sites.node_accused:
            record = sites.sites[index].record
            if any(each.at + avoid_s <= now for each in record.nodes):
                record.nodes = [each for each in record.nodes if each.at + avoid_s > now]
                ledger.changes.sites[index] = None
            if not record.nodes:
                sites.node_accused.pop(index, None)
            for each in record.nodes:
                if each.proved and each.owner == job.submitter and each.program == self._program(job, part):
                    nodes[each.node] = each.at + avoid_s
        if failed is not None:
            if any(until <= now for until in failed.values()):
                failed = {node: until for node, until in failed.items() if until > now}
                job.failed_nodes = _with(job.failed_nodes, ledger.names[index], failed)
                job.changed()
            nodes = {node: until for node, until in nodes.items() if node not in failed} | failed
        return dict(list(nodes.items())[-EXCLUDED_NODES_MAX:])

    def of_claim(self, job: Job, claim: ComponentClaim) -> tuple[str, ...]:
        """Return the nodes that a component claimed now is kept off.

        None if the site has too few others: the component would not be there if it had another way.
        """
        nodes = self.nodes(job, claim.component, claim.site)
        shape = job.request.shape_of(claim.component)
        if nodes and not self._leaves_room(claim.site, shape, claim.processors, nodes):
            self.ledger.story.append(NodesAllowed(job=job.id, site=self.ledger.names[claim.site], once=True))
            return ()
        return tuple(nodes)

    def allow_all(self, job: Job, claim: ComponentClaim) -> bool:
        """Lift the exclusions of a component that has no other way; return True if there were any."""
        if not self.nodes(job, claim.component, claim.site):
            return False
        job.failed_nodes = _with(job.failed_nodes, self.ledger.names[claim.site], {})
        job.changed()
        self.ledger.changes.sites[claim.site] = None
        sites = self.ledger.sites
        if sites.sites[claim.site].record.clear_nodes(job.submitter, self._program(job, claim.component)):
            sites.exclusions_changed(claim.site)
        self.ledger.story.append(NodesAllowed(job=job.id, site=self.ledger.names[claim.site], once=False))
        return True

    def closed_to(self, job: Job, *, own: bool = True) -> dict[int, float]:
        """Return the sites with too few nodes left for a component of the job, and the earliest end of that.

        Without ``own``, only the proved nodes count.
        """
        ledger = self.ledger
        if not job.failed_nodes and not ledger.sites.node_accused:
            return {}
        accused = {*ledger.sites.node_accused, *(ledger.index[name] for name in job.failed_nodes)}
        closed = {}
        for index in sorted(accused):
            for part, component, least in self._parts(job, index):
                nodes = self.nodes(job, part, index, own=own)
                if nodes and not self._leaves_room(index, component.shape, least, nodes):
                    closed[index] = min(nodes.values())
                    break
        return closed

    def at(self, index: int) -> list[Exclusion]:
        """Return the nodes of the site that programs are kept off. Changes nothing."""
        ledger = self.ledger
        belief, avoid_s = ledger.sites.sites[index], ledger.parameters.avoid_failed_s
        proved = [each for each in belief.record.nodes if each.proved and each.at + avoid_s > ledger.now]
        by_program: dict[tuple[str, str], set[str]] = {}
        for each in proved:
            by_program.setdefault((each.owner, each.program), set()).add(each.node)
        closes = {whose: not self._leaves_room(index, None, 1, nodes) for whose, nodes in by_program.items()}
        return [Exclusion(each, each.at + avoid_s, closes[each.owner, each.program]) for each in proved]

    def concerned(self) -> Iterator[Job]:
        """Return the jobs that may be kept off nodes because of the failures of others."""
        sites = self.ledger.sites
        owners = {each.owner for index in sites.node_accused for each in sites.sites[index].record.nodes}
        return (job for job in self.ledger.jobs.values() if job.submitter in owners)

    def _parts(self, job: Job, index: int) -> Iterator[tuple[int, Component, int]]:
        """Yield the components that may go to the site, with the fewest processors that they could have there."""
        flexible, name = job.request.flexible, self.ledger.names[index]
        for part, component in enumerate(job.request.components):
            if component.site in (None, name):
                least = component.processors
                if flexible is not None:
                    least = min([min(split) for split in flexible.splits] or [flexible.component_min])
                yield part, component, least

    def _leaves_room(self, index: int, shape: TaskShape | None, processors: int, without: Collection[str]) -> bool:
        """Return True if a component of this size that fits on the nodes of the site fits on them without these.

        The answer goes by what the site reports.
        """
        belief, shape = self.ledger.sites.sites[index], shape or PLAIN
        if not belief.named:
            return True
        kinds = [(each.whole, each.features, each.count) for each in belief.nodes]
        kinds = kinds or [(each.whole, each.features, 1) for each in belief.named]
        room = sum(count * places_of(whole, features, shape) for whole, features, count in kinds)
        lost = sum(places_of(each.whole, each.features, shape) for each in belief.named if each.name in without)
        tasks = -(-processors // shape.processors)
        return room < tasks or room - lost >= tasks

    def _program(self, job: Job, part: int) -> str:
        return program_of(job.request, component_of(job, part)).digest


def _with(
    failed: dict[SiteName, dict[str, float]], site: SiteName, nodes: dict[str, float]
) -> dict[SiteName, dict[str, float]]:
    """Return the failed nodes with these nodes as the only ones of the site."""
    others = {name: there for name, there in failed.items() if name != site}
    return others | {site: nodes} if nodes else others


def component_of(job: Job, part: int) -> Component:
    """Return the component of the request from which this component of the job was made."""
    return job.request.components[0 if job.request.flexible is not None else part]
