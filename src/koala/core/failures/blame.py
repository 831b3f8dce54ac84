"""Where the fault for a failed application lies: in the application itself, or in the site where it failed.

A program that fails proves nothing. A program that fails at a site and then runs to its end elsewhere, unchanged, is
evidence against that site. Three kinds of end blame nobody: those without an exit code, those that the user declares
to be the application's own verdict, and those that we or the site caused.

A component on one node is evidence against the node in the same way. Its job is kept off the node if the failure has
a sign of the node; all jobs of that user with the same program are kept off it if the same application succeeds on
other nodes. ``koala.core.failures.exclusions`` has the consequences.
"""

from __future__ import annotations

import hashlib

import msgspec

from koala.core.encoded import NO_ENTRIES
from koala.core.failures.exclusions import component_of
from koala.core.failures.program import program_of
from koala.core.life.component import ComponentClaim
from koala.core.life.job import Job
from koala.core.state.blame import (
    ACCUSERS_MIN,
    PLAIN_WEIGHT,
    SIGNED_WEIGHT,
    TRUST_LOST_WEIGHT,
    Accusation,
    NodeAccusation,
    accuser_of,
    user_of,
)
from koala.core.state.ledger import Ledger
from koala.core.state.site_belief import SiteBelief
from koala.model.facts import DistrustProved
from koala.model.nodes import EXCLUDED_NODES_MAX

# A run that fails within this time has failed at once.
AT_ONCE_S = 2.0
# The exit codes of a shell that cannot execute the program, or does not find it.
CANNOT_EXECUTE, NOT_FOUND = 126, 127
# A shell adds this to the number of the signal that ended a program.
SIGNALLED = 128


class Blame:
    """Collects accusations from failures, and proofs from successes."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def application_failed(
        self, job: Job, claim: ComponentClaim, exit_code: int, nodes: tuple[str, ...] = ()
    ) -> None:
        """Note that the component's application failed by itself at its site. With several nodes, none is blamed."""
        missing = exit_code in (CANNOT_EXECUTE, NOT_FOUND)
        if len(set(job.placed.spots.sites)) > 1 and not missing:
            return  # a failure at one site may have its cause at another, except for a missing program
        at_once = job.started_at is not None and self.ledger.now - job.started_at < AT_ONCE_S
        signed = missing or exit_code > SIGNALLED or at_once
        self._accuse(job, claim, f"exit code {exit_code}", SIGNED_WEIGHT if signed else PLAIN_WEIGHT)
        if len(nodes) == 1:
            self._accuse_node(job, claim, nodes[0], f"exit code {exit_code}", signed=signed)

    def component_broke(self, job: Job, claim: ComponentClaim) -> None:
        """Note that the component broke while it ran, and that the site does not take the blame."""
        self._accuse(job, claim, "a component broke", PLAIN_WEIGHT)

    def _accuse(self, job: Job, claim: ComponentClaim, how: str, weight: int) -> None:
        ledger = self.ledger
        accusation = Accusation(ledger.now, job.id, weight, _witness(job), f"{how} (job {job.id})")
        ledger.sites.sites[claim.site].record.accuse(_accuser(job, claim), accusation)
        ledger.sites.accused[claim.site] = ledger.changes.sites[claim.site] = None

    def _accuse_node(self, job: Job, claim: ComponentClaim, node: str, what: str, *, signed: bool) -> None:
        ledger = self.ledger
        avoid_s = ledger.parameters.avoid_failed_s
        if avoid_s <= 0:
            return
        program = program_of(job.request, component_of(job, claim.component))
        accusation = NodeAccusation(
            node, job.submitter, program.digest, ledger.now, job.id, _witness(job), program.name, what
        )
        ledger.sites.sites[claim.site].record.accuse_node(accusation)
        ledger.sites.node_accused[claim.site] = ledger.changes.sites[claim.site] = None
        if signed:
            name = ledger.names[claim.site]
            excluded = dict(job.failed_nodes.get(name, NO_ENTRIES))
            excluded.pop(node, None)
            excluded[node] = ledger.now + avoid_s
            while len(excluded) > EXCLUDED_NODES_MAX:
                del excluded[next(iter(excluded))]
            job.failed_nodes = {**job.failed_nodes, name: excluded}

    def component_done(self, job: Job, claim: ComponentClaim, nodes: tuple[str, ...]) -> None:
        """Note that the component ran to its end on these nodes: the program works there."""
        sites = self.ledger.sites
        if claim.site in sites.node_accused and nodes:
            program = program_of(job.request, component_of(job, claim.component))
            if sites.sites[claim.site].record.clear_nodes(job.submitter, program.digest, nodes):
                self.ledger.changes.sites[claim.site] = None
                sites.exclusions_changed(claim.site)

    def job_done(self, job: Job, nodes: tuple[str, ...] = ()) -> None:
        """Note that the job ran to its end.

        Failures of the same application at other sites were then the fault of those sites, and failures on other
        nodes the fault of those nodes. ``nodes`` are the nodes of the component that ended last.
        """
        ledger = self.ledger
        if ledger.sites.node_accused:
            self._prove_nodes(job, nodes)
        if not ledger.sites.accused:
            return
        accused = [index for index in sorted(ledger.sites.accused) if ledger.names[index] not in dict(job.places)]
        if not accused:
            return
        witness = _witness(job)
        for index in accused:
            record = ledger.sites.sites[index].record
            ledger.changes.sites[index] = None
            if record.prove(witness, job.id, ledger.now) and _is_guilty(ledger.sites.sites[index]):
                ledger.distrust(index, record.verdict)
                # The jobs of others are not the user's business.
                reason = record.distrusted_in_short
                ledger.story.append(DistrustProved(job=job.id, site=ledger.names[index], reason=reason))

    def _prove_nodes(self, job: Job, nodes: tuple[str, ...]) -> None:
        """Record proofs against nodes. At the site itself, success proves something only if all nodes of the
        run are known."""
        sites, names = self.ledger.sites, self.ledger.names
        own = () if nodes and len(job.places) == 1 else dict(job.places)
        accused = [index for index in sorted(sites.node_accused) if names[index] not in own]
        if accused:
            witness = _witness(job)
            for index in accused:
                if sites.sites[index].record.prove_nodes(witness, job.id):
                    self.ledger.changes.sites[index] = None
                    sites.exclusions_changed(index)


def _is_guilty(site: SiteBelief) -> bool:
    """Return True if the proofs against the site suffice, and do not come from one user whose programs alone fail."""
    proved, by_user = site.record.proved, dict[str, int]()
    for accuser, weight in proved.items():
        user = user_of(accuser)
        by_user[user] = by_user.get(user, 0) + weight
    return len(proved) >= ACCUSERS_MIN and site.counting(by_user, sum(proved.values())) >= TRUST_LOST_WEIGHT


def _accuser(job: Job, claim: ComponentClaim) -> str:
    """Return the accuser: a user with a command.

    All scripts of a user count as one accuser of a site: programs often generate them, and a sweep of them accuses a
    site once.
    """
    return accuser_of(job.submitter, component_of(job, claim.component).application.executable or "a script")


def _witness(job: Job) -> str:
    """Return the identity by which the very same application of the same user is recognised."""
    applications = [component.application for component in job.request.components]
    distinct = applications if any(each != applications[0] for each in applications) else applications[:1]
    return hashlib.sha256(msgspec.json.encode((job.submitter, distinct))).hexdigest()[:32]
