"""Whose fault a failure of an application is: its own, or that of the site where it failed.

A program that fails proves nothing. One that fails at a site and then runs to its end elsewhere, unchanged, speaks
against that site. Nobody is blamed for an end without an exit code, for one that the user calls the application's own
word, and for what we or the site ended.

A component on one node speaks against the node in the same way: its job is kept off the node when the failure has a
sign of it, and all jobs of that user with the same program when the same application does well on other nodes. Where
that leads is in ``koala.core.failures.exclusions``.
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

# A run that fails within so many seconds has failed at once.
AT_ONCE_S = 2.0
# The shell cannot execute the program, or does not find it.
CANNOT_EXECUTE, NOT_FOUND = 126, 127
# A shell adds this to the number of the signal that ended a program.
SIGNALLED = 128


class Blame:
    """Accusations come in with failures, and proofs with successes."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def application_failed(
        self, job: Job, claim: ComponentClaim, exit_code: int, nodes: tuple[str, ...] = ()
    ) -> None:
        """The application of the component failed by itself at its site. Of several nodes none is blamed."""
        missing = exit_code in (CANNOT_EXECUTE, NOT_FOUND)
        if len(set(job.placed.spots.sites)) > 1 and not missing:
            return  # what fails at one site may have its cause at another, but for a program that is not there
        at_once = job.started_at is not None and self.ledger.now - job.started_at < AT_ONCE_S
        signed = missing or exit_code > SIGNALLED or at_once
        self._accuse(job, claim, f"exit code {exit_code}", SIGNED_WEIGHT if signed else PLAIN_WEIGHT)
        if len(nodes) == 1:
            self._accuse_node(job, claim, nodes[0], f"exit code {exit_code}", signed=signed)

    def component_broke(self, job: Job, claim: ComponentClaim) -> None:
        """The component broke while it ran, and the site does not say that it was its doing."""
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
        """The component ran to its end on these nodes: the program does well there."""
        sites = self.ledger.sites
        if claim.site in sites.node_accused and nodes:
            program = program_of(job.request, component_of(job, claim.component))
            if sites.sites[claim.site].record.clear_nodes(job.submitter, program.digest, nodes):
                self.ledger.changes.sites[claim.site] = None
                sites.exclusions_changed(claim.site)

    def job_done(self, job: Job, nodes: tuple[str, ...] = ()) -> None:
        """The job ran to its end: what the same application did at other sites was their fault, and on other nodes
        theirs. ``nodes`` are those of the component that ended last."""
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
                # Others' jobs are not its business.
                reason = record.distrusted_in_short
                ledger.story.append(DistrustProved(job=job.id, site=ledger.names[index], reason=reason))

    def _prove_nodes(self, job: Job, nodes: tuple[str, ...]) -> None:
        """At a site of its own that proves something only where all nodes that it ran on are known."""
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
    """Whether what is proved against the site is enough, and not of one user's programs where others' start."""
    proved, by_user = site.record.proved, dict[str, int]()
    for accuser, weight in proved.items():
        user = user_of(accuser)
        by_user[user] = by_user.get(user, 0) + weight
    return len(proved) >= ACCUSERS_MIN and site.counting(by_user, sum(proved.values())) >= TRUST_LOST_WEIGHT


def _accuser(job: Job, claim: ComponentClaim) -> str:
    """A user with a command. All scripts of a user are one accuser of a site: they are often made by a program, and a
    sweep of them accuses a site once."""
    return accuser_of(job.submitter, component_of(job, claim.component).application.executable or "a script")


def _witness(job: Job) -> str:
    """Tells the very same application of the same user again."""
    applications = [component.application for component in job.request.components]
    distinct = applications if any(each != applications[0] for each in applications) else applications[:1]
    return hashlib.sha256(msgspec.json.encode((job.submitter, distinct))).hexdigest()[:32]
